"""Coordination: the two production adapters of the Coordination port, and Kafka's znodes.

`znodes` holds every path and every content, pure; `zookeeper` speaks to a real ensemble; `embedded` keeps the same
model in one SQLite file for a fleet that lives in one process. `tree` and `watches` are the pure parts that the
embedded adapter shares with the simulated one.
"""
