"""KafkaTopics. Pure."""
