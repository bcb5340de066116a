"""The Spark program of the runs: writes each file of a folder as one batch, split among some tasks.

Reads one JSON object per line from standard input, {"folder", "bootstrap", "topic", "split"}, runs a query until it has
written all files or has failed, and answers "ended" or "failed". A killed JVM ends this process with it. Each task
leaves a file for the driver, in a directory as executors share one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.pipeline.exactly_once.killing import JVM, SPOOL, KillingDataSource


def main() -> None:
    """Until the end of the input."""
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
    spark.dataSource.register(KillingDataSource)
    for line in sys.stdin:
        request = json.loads(line)
        (Path(request["folder"]) / JVM).write_text(str(spark.sparkContext._gateway.proc.pid))
        print(write(spark, **request), flush=True)


def write(spark: Any, folder: str, bootstrap: str, topic: str, split: int) -> str:
    """Runs the query, from its checkpoint if there is one."""
    from pyspark.errors import StreamingQueryException

    rows = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(f"{folder}/source")
    query = (
        rows.selectExpr("value as key", "rpad(value, 2000, '.') as value").repartition(split)
        .writeStream.format("killing").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
        .option("folder", folder).option("checkpointLocation", f"{folder}/checkpoint")
        .option("spoolDirectory", f"{folder}/{SPOOL}")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        print(error, file=sys.stderr, flush=True)
        return "failed"
    return "ended"


if __name__ == "__main__":
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    main()
