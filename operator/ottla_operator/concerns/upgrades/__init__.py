"""Kafka versions that a fleet goes through. Pure."""
