"""Ottla's broker: a Kafka-compatible log server whose decisions are pure and whose edges are five ports."""

__version__ = "0.2.0"
