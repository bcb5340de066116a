"""The Python that Spark starts for its processes: it loads pyspark with bytecode, and keeps the rest of its path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_pipeline.running.worker_python import PROGRAM, VARIABLE, worker_python

pyspark = pytest.importorskip("pyspark")
HOME = Path(pyspark.__file__).parent
SHOWS = "import json, os, sys, pyspark, py4j; print(json.dumps([pyspark.__file__, os.environ['PYTHONPATH'], sys.argv]))"


def test_a_worker_loads_the_installed_pyspark_and_finds_the_modules_of_steps() -> None:
    (py4j,) = (HOME / "python" / "lib").glob("py4j-*-src.zip")
    (core,) = (HOME / "jars").glob("spark-core_*.jar")
    path = [HOME / "python" / "lib" / "pyspark.zip", py4j, core, "/folder with steps", "/files/of-a-user.zip", "/a.jar"]
    environment = os.environ | worker_python({}) | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [environment["PYSPARK_PYTHON"], "-c", SHOWS, "an argument"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    file, kept, arguments = json.loads(done.stdout)
    assert Path(file) == Path(pyspark.__file__)
    assert kept == "/folder with steps:/files/of-a-user.zip:/a.jar"
    assert arguments == ["-c", "an argument"]


def test_another_python_that_the_user_names_is_taken_as_it_is() -> None:
    assert worker_python({"PYSPARK_PYTHON": "./env/bin/python"}) == {"PYSPARK_PYTHON": "./env/bin/python"}
    assert worker_python({"PYSPARK_PYTHON": sys.executable}) == worker_python(worker_python({})) == worker_python({})
    assert worker_python({}) == {"PYSPARK_PYTHON": str(PROGRAM), VARIABLE: sys.executable}


def test_a_pyspark_that_is_only_in_the_zip_of_a_spark_home_is_left_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert worker_python({}) == {"PYSPARK_PYTHON": sys.executable}
