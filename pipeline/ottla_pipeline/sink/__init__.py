"""The Spark sink: rows become record batches."""
