"""The Kubernetes operator of Ottla: KafkaCluster and KafkaTopic become brokers, a ZooKeeper ensemble and topics.

    model     the documents that a user writes, as values
    api       names, objects, conditions and Events of the Kubernetes API
    planning  what should exist for a KafkaCluster;  roller  rolling restarts;  topics  what a KafkaTopic asks for
    effects   the ports to Kubernetes and Kafka, and their adapters
    runtime   the process: watches, tasks, lease

`reference` prints the pages of the manual, `command` is the command line.
"""
