"""What should exist for a KafkaCluster, and why: pure functions from a snapshot to objects, conditions and wake-ups.

One module per concern: zookeeper, config, disks, services, brokers; `identity` gives ids and racks. Nothing here reads
a clock, awaits, or knows kopf or a client; the same snapshot gives the same decision.
"""
