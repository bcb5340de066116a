"""How Spark finds the format "ottla" without a register call: it imports top-level modules named `pyspark_*` and takes
their `DefaultSource`."""

from ottla_pipeline.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
