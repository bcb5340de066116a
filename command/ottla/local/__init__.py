"""A fleet on one machine, from the same documents as on Kubernetes.

`layout`: paths, ports and the configuration of each broker. `in_process`, `fleet`: brokers in one process.
`supervisor`: one process per broker. `daemon`: the background process. `control`: the socket between the daemon and the
`ottla local` commands. `topic_documents`: creates and alters the declared topics. `document_changes`,
`dynamic_values`: other documents for a fleet that runs. `known_fleets`, `fleet_state`, `port_owners`: what people are
told. `disks`: the requests of `ottla disk`. `secure_files`, `client_files`, `first_users`: what --secure adds.
`client_connector`, `controller_requests`: how this program speaks to brokers.
"""
