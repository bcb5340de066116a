"""Steps of the pipelines beside this file that SQL cannot say."""

from pyspark.sql import DataFrame


def first_of_each_key(rows: DataFrame) -> DataFrame:
    """The first record of each key, as long as the watermark has not passed it."""
    return rows.select("key", "value", "timestamp").dropDuplicatesWithinWatermark(["key"])
