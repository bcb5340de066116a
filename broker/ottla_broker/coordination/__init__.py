"""Coordination: the two production adapters of the Coordination port, and Kafka's znodes.

`znodes`: paths and contents of Kafka's znodes, pure. `zookeeper`: the adapter for a ZooKeeper ensemble. `embedded`: the
adapter for a fleet in one process, with ZooKeeper's data model in one SQLite file. `tree` and `watches`: the pure parts
that the embedded and the simulated adapter share.
"""
