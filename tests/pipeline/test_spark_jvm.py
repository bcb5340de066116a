"""The sessions of two test modules in one process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.postgresql import driver
from tests.pipeline.spark_jvm import local_session, own_jvm

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.long]


def knows_postgresql(spark: Any) -> bool:
    return bool(spark._jvm.org.apache.spark.util.Utils.classIsLoadable("org.postgresql.Driver"))


def test_the_class_path_of_a_session_is_its_own(tmp_path: Path) -> None:
    with own_jvm(lambda: local_session(tmp_path)) as spark:
        assert not knows_postgresql(spark)
    environment = dict(os.environ)
    with own_jvm(lambda: local_session(tmp_path, jars=[driver()])) as spark:
        assert knows_postgresql(spark)
        assert spark.range(3).count() == 3
    assert dict(os.environ) == environment
