"""What should exist for a KafkaCluster, and why: pure functions from a snapshot to objects, conditions and deletions.

`concerns` puts the decisions of the concerns together: zookeeper, identity (ids and racks), broker_removal, disks,
config, services, brokers, quorum_recovery and rolls. Nothing here reads a clock, awaits, or knows kopf or a client; the
same snapshot gives the same decision.
"""
