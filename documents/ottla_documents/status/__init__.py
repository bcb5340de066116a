"""The statuses of KafkaCluster, KafkaTopic and KafkaPipeline. The operator writes them as mappings."""
