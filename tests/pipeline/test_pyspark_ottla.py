"""What `import pyspark_ottla` sets for the session that is made next."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({}, "true"),
        ({"PYSPARK_UDS_MODE": "false"}, "false"),
        ({"PYSPARK_GATEWAY_PORT": "1"}, "None"),
    ],
    ids=["nothing set", "set by the user", "started by spark-submit"],
)
def test_spark_speaks_to_python_over_unix_domain_sockets(environment: dict[str, str], mode: str) -> None:
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", "import os, pyspark_ottla; print(os.environ.get('PYSPARK_UDS_MODE'))"],
        env={**others, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == mode


def test_a_java_process_that_runs_already_decides() -> None:
    program = (
        "import os\n"
        "from pyspark import SparkContext\n"
        "SparkContext._gateway = object()\n"
        "import pyspark_ottla\n"
        "print(os.environ.get('PYSPARK_UDS_MODE'))"
    )
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    done = subprocess.run([sys.executable, "-c", program], env=others, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
