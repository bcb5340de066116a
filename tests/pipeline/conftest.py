"""The Spark session of a test module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the stock connector beside ours, and PostgreSQL's driver."""
    from pyspark.sql import SparkSession

    import pyspark_ottla  # noqa: F401  as every program does
    from bench.spark_read import stock_jars
    from tests.pipeline.postgresql import driver

    work = tmp_path_factory.mktemp("spark")
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, [*stock_jars(work), driver()])))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .getOrCreate()
    )
    yield session
    session.stop()
