"""The client of the wire protocol that readers and writers share: options, one connection, and the cluster."""
