"""KafkaTopic: what has to change in Kafka and in the document's status. `decisions` is pure."""
