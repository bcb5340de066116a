"""The second part of the demo: the Spark example of the README reads the topic, where Spark is installed.

The demo does not install it: it is half a gigabyte.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from demo.fleet import CHECKOUT
from ottla.local.jars import MissingRequirement, find_java

EXAMPLE = CHECKOUT / "examples" / "flights.py"
INSTALL_SPARK = "scripts/setup-venv.sh --spark"
INSTALL_JAVA = "apt-get install openjdk-17-jre-headless"
_LEAST_JAVA = 17
_EXAMPLE_S = 900.0


def skip_reason() -> str:
    """Why the act is left out, with the line that installs what is missing; "" when it can be played."""
    if importlib.util.find_spec("pyspark") is None:
        return f"Spark is not installed. {INSTALL_SPARK} fetches it (450 MB, needs Java {_LEAST_JAVA})"
    try:
        java = find_java()
    except MissingRequirement:
        return f"Spark needs Java, which was not found:  {INSTALL_JAVA}"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', told)
    if version is None or int(version[1]) < _LEAST_JAVA:
        return f"Spark needs Java {_LEAST_JAVA} or later, {java} is older:  {INSTALL_JAVA}"
    return ""


def second_act(console: Console, bootstrap: str, folder: Path) -> bool:
    """Runs the example; its picture and Spark's log go to `folder`. False on a failure.

    Without Spark one line says how to install it: that is no failure.
    """
    if missing := skip_reason():
        console.print(f"left out   Spark reads the topic too: {missing}", soft_wrap=True, highlight=False)
        return True
    console.rule("Spark reads the same topic: examples/flights.py")
    picture, log = folder / "delays.png", folder / "spark.log"
    start = time.monotonic()
    with console.status("a Spark session comes up, reads, and counts"), log.open("w") as errors:
        try:
            done = subprocess.run(
                [sys.executable, str(EXAMPLE), bootstrap, str(picture)],
                stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True, timeout=_EXAMPLE_S,
                env={"SPARK_LOCAL_IP": "127.0.0.1", **os.environ, "PYSPARK_PYTHON": sys.executable}, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            console.print(f"Spark did not end within {_EXAMPLE_S:.0f} s, see {log}", style="red", soft_wrap=True)
            return False
    if done.returncode:
        console.print(f"examples/flights.py failed, see {log}", style="red", soft_wrap=True)
        return False
    console.print("average arrival delay in minutes, by the hour of departure and carrier")
    console.print(done.stdout.rstrip(), highlight=False, soft_wrap=True)
    console.print(f"picture    {os.path.relpath(picture)}: the same as colours", soft_wrap=True)
    console.print(f"took       {time.monotonic() - start:.0f} s, the start of Spark included")
    return True
