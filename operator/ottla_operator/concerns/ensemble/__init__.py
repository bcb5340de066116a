"""The ZooKeeper ensemble: its servers, their volumes, more or fewer of them, a quorum that is lost. Pure."""
