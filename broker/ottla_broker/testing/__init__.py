"""For tests, ours and users': a fleet in this process (`cluster`) and a real ZooKeeper (`testing.zookeeper`)."""

from ottla_broker.testing.cluster import Cluster, cluster

__all__ = ["Cluster", "cluster"]
