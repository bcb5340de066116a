"""A fleet on one machine, from the same documents as on Kubernetes.

`layout`: paths, ports and the configuration of each broker. `fleet`: brokers in this process. `supervisor`: one process
per broker. `daemon`: the background process. `control`: the socket between the daemon and the `ottla local` commands.
`topic_documents`: creates and alters the declared topics. `disks`: the requests of `ottla disk`.
"""
