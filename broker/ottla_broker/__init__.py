"""Ottla's broker: a Kafka-compatible log server whose decisions are pure and whose edges are six ports."""

__version__ = "0.2.0"
