"""Replication: what a broker does with a partition as its leader or as a follower.

`isr` and `divergence` are the rules, pure; `delayed` keeps requests that wait; `partition` is one replica on this
broker; `replica_manager` holds them all; `fetcher` follows other leaders; `alter_partition` asks the controller for ISR
changes. Wire formats of client requests stand in `ottla_broker.server.handlers`, files in `ottla_broker.storage`.
"""
