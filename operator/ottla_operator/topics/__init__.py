"""What a KafkaTopic asks for: changes in Kafka, the finalizer and status. Pure."""
