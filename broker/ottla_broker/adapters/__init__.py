"""Production adapters of the ports: sockets, files, threads and child processes stand here and nowhere else."""
