"""Requests of as many elements as fit, beside Apache Kafka: `python -m bench.hostile`."""
