"""Which Python Spark starts for its processes: one that loads pyspark from its installed package.

Spark puts the pyspark.zip of its home in front of their path. It has no bytecode, so each process compiles what it
loads: more than half of the CPU that a process takes to start, and on a machine with little of it Spark waits for no
longer than ten seconds. Spark has no setting for it; the name of the program is all that it lets one choose.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAM = Path(__file__).with_name("worker_python.sh")
VARIABLE = "OTTLA_WORKER_PYTHON"


def worker_python(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the environment that choose the Python of Spark's processes.

    The one that runs this program, unless PYSPARK_PYTHON names another one, which may not have what this one has.
    """
    named = environment.get("PYSPARK_PYTHON", sys.executable)
    if named not in (sys.executable, str(PROGRAM)):
        return {"PYSPARK_PYTHON": named}
    if not os.access(PROGRAM, os.X_OK) or not all(map(_is_in_a_folder, ("pyspark", "py4j"))):
        return {"PYSPARK_PYTHON": sys.executable}
    return {"PYSPARK_PYTHON": str(PROGRAM), VARIABLE: sys.executable}


def _is_in_a_folder(package: str) -> bool:
    """Whether a package is installed: with `SPARK_HOME/python/lib/*.zip` on its path a program has it there alone."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None and Path(found.origin).is_file()
