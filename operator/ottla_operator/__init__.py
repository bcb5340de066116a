"""The Kubernetes operator of Ottla: KafkaCluster and KafkaTopic become brokers, a ZooKeeper ensemble and topics.

    api               names, objects, conditions and Events of the Kubernetes API
    objects           builders of pods
    facts             what any concern may ask: the snapshot, claims, nodes, differences, maintenance
    rebalancer        where replicas should be
    concerns          what should exist, one package for each concern
    cluster_decision  the concerns of a KafkaCluster in their order
    effects           the ports to Kubernetes and Kafka, and their adapters
    runtime           the process: watches, tasks, lease

The documents that a user writes are values of `ottla_documents`. `reference` prints the pages of the manual, `command`
is the command line.
"""
