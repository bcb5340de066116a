"""Registers the format "ottla": Spark imports top-level modules named `pyspark_*` and uses their `DefaultSource`."""

from ottla_pipeline.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
