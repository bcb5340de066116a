"""Kills whatever takes part in a streaming write, at each of its steps, with real Spark: `python -m` this package."""
