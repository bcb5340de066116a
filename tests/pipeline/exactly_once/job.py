"""The Spark program of a run: writes each file of a folder as one batch, split among some tasks, and ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.pipeline.exactly_once.killing import JVM, KillingDataSource


def main(folder: Path, bootstrap: str, topic: str, split: int) -> None:
    """Exits with an error when the query does."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")  # it runs for seconds
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
        .getOrCreate()
    )
    (folder / JVM).write_text(str(spark.sparkContext._gateway.proc.pid))
    spark.dataSource.register(KillingDataSource)
    rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(str(folder / "source"))
    query = (
        rows.selectExpr("value as key", "rpad(value, 600, '.') as value").repartition(split)
        .writeStream.format("killing").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        .option("folder", str(folder)).option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
