"""Test helpers for users and for our own tests: a cluster in this process, on real sockets and files.

with cluster(brokers=3, racks=3, disks=2) as fleet:
    producer = confluent_kafka.Producer({"bootstrap.servers": fleet.bootstrap})
"""

from ottla.testing.cluster import RunningCluster, cluster

__all__ = ["RunningCluster", "cluster"]
