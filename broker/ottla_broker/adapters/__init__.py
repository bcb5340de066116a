"""Production adapters of the ports: sockets, files, threads and child processes are used here and nowhere else."""
