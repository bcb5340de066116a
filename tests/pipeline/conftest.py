"""The Spark session of a test module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the stock connector beside ours, and PostgreSQL's driver."""
    from bench.spark_read import stock_jars
    from tests.pipeline.postgresql import driver
    from tests.pipeline.spark_jvm import local_session, own_jvm

    work = tmp_path_factory.mktemp("spark")
    jars = [*stock_jars(work), driver()]
    with own_jvm(lambda: local_session(work, jars=jars)) as session:
        yield session
