"""The recipe of pipelines.md for a cluster whose workers do not have the package: an archive with it, and Spark's own.

`local-cluster` has an executor in a process of its own, with a working directory of its own, as a standalone cluster.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from confluent_kafka import Producer
from packaging.requirements import Requirement

from ottla.testing import cluster
from tests.pipeline.sink.test_delivery import topic

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.long]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operating" / "pipelines.md"
JOB = """
import sys
import pyspark_ottla
from pyspark.sql import SparkSession

def where(rows):
    import ottla_pipeline
    yield ottla_pipeline.__file__, sum(1 for _ in rows)

spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.format("ottla").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "archived").load()
for place, count in rows.coalesce(1).rdd.mapPartitions(where).collect():
    print("RESULT", count, place)
"""


def installed(folder: Path) -> None:
    """What `pip install . 'numpy>=2' 'pyarrow>=18'` leaves in a folder, copied from the environment of the tests."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for package in wheel["packages"]:
        shutil.copytree(ROOT / package, folder / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    wanted, known = ["numpy", "pyarrow", *(importlib.metadata.requires("ottla") or ())], set()
    while wanted:
        requirement = Requirement(wanted.pop())
        if requirement.name in known or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        known.add(requirement.name)
        distribution = importlib.metadata.distribution(requirement.name)
        wanted += distribution.requires or ()
        for name in {Path(file).parts[0] for file in distribution.files or () if ".." not in Path(file).parts}:
            found = Path(str(distribution.locate_file(name)))
            if found.is_dir() and found.name != "__pycache__":
                shutil.copytree(found, folder / name, dirs_exist_ok=True, symlinks=True)
            elif found.is_file():
                shutil.copy2(found, folder / name)


def test_the_archive_brings_the_package_to_executors_that_do_not_have_it(tmp_path: Path) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    making, submitting = (
        re.findall(r"^```sh\n(.*?)^```", PAGE.read_text().partition("### On a cluster")[2], re.DOTALL | re.MULTILINE)
    )[:2]
    venv, _, tar = making.splitlines()
    environment = {
        "PATH": os.pathsep.join([str(home / "bin"), os.environ["PATH"]]), "HOME": str(tmp_path),
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    python3 = Path(sys.executable).resolve()
    subprocess.run(f"{python3} {venv.removeprefix('python3 ')} --without-pip", shell=True, cwd=tmp_path, check=True)
    (packages,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    installed(packages)
    subprocess.run(tar, shell=True, cwd=tmp_path, check=True)
    (tmp_path / "job.py").write_text(JOB)
    before = set((home / "work").glob("*"))
    with cluster(brokers=1, racks=1) as fleet:
        topic(fleet, "archived", replicas=1)
        producer = Producer({"bootstrap.servers": fleet.bootstrap})
        for number in range(10):
            producer.produce("archived", b"%d" % number)
        assert producer.flush(60) == 0
        submit = submitting.strip().replace("spark://HOST:7077", "'local-cluster[1,1,1024]'")
        try:
            done = subprocess.run(
                f"{submit} {fleet.bootstrap}", shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
            (result,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT"))
            _, count, place = result.split(" ", 2)
            assert count == "10"
            assert Path(place).is_relative_to(home / "work") and "/env/lib/" in place  # unpacked by the executor
        finally:
            for folder in set((home / "work").glob("*")) - before:
                shutil.rmtree(folder)
