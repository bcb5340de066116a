"""Who is who on a connection: keys and certificates of TLS. The server's half and the client's, without any I/O but the
files of the stores."""
