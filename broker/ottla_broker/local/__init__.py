"""The fleet on one machine: the documents that Kubernetes gets, run as processes or as one process.

`layout` says where things lie and what each broker's configuration is (pure but for its one state file), `fleet` runs
brokers in this process, `supervisor` runs one process per broker, `control` is the socket by which the `ottla local`
commands reach either, and `topics` makes the declared topics so.
"""
