"""What should exist, and why: a package for each concern of a KafkaCluster, and for KafkaTopics and KafkaPipelines.

    ensemble    the ZooKeeper servers          brokers    StatefulSets, Services, budgets
    fleet       which brokers there are        rebalance  when replicas move
    disks       claims, drains, replacements   roll       restarts, step by step
    config      server.properties              upgrades   Kafka versions
    topics      KafkaTopics                    pipelines  KafkaPipelines

Pure functions from a snapshot (`facts.snapshot`) to objects, conditions and deletions: nothing here reads a clock,
awaits, or knows kopf or a client; the same snapshot gives the same decision. `cluster_decision` puts those of a
KafkaCluster together. A concern that needs the decision of another takes it as an argument.
"""
