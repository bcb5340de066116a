"""Becomes an executor of Spark, in a pod of a driver: `python -m ottla_pipeline.running.executor executor`.

It is what `entrypoint.sh executor` does in Spark's own image, for ours, which has Spark as a package of Python. Spark
adds the argument `executor` to the command of its pod template, and puts everything else into the environment
(BasicExecutorFeatureStep). Python's modules are those of the image, which is the driver's, and those in the working
directory, as on the driver.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

MAIN_CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
OPTION = "SPARK_JAVA_OPT_"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
HEAP = "SPARK_EXECUTOR_MEMORY"


def missing(environment: Mapping[str, str]) -> list[str]:
    """What a driver would have set.

    >>> missing({"SPARK_EXECUTOR_MEMORY": "1g"})[:2]
    ['SPARK_DRIVER_URL', 'SPARK_EXECUTOR_ID']
    """
    return [name for name in (*ARGUMENTS.values(), HEAP) if not environment.get(name)]


def command(environment: Mapping[str, str], spark_home: Path) -> list[str]:
    """The program and its arguments."""
    java = f"{environment['JAVA_HOME']}/bin/java" if environment.get("JAVA_HOME") else "java"
    numbered = [(int(name.removeprefix(OPTION)), value) for name, value in environment.items() if _is_option(name)]
    folders = [environment.get("SPARK_CLASSPATH", ""), f"{spark_home}/jars/*"]
    values = {option: environment[name] for option, name in ARGUMENTS.items()}
    values["--hostname"] = in_brackets(values["--hostname"])
    return [
        java,
        *(value for _, value in sorted(numbered)),
        f"-Xms{environment[HEAP]}",
        f"-Xmx{environment[HEAP]}",
        "-cp",
        os.pathsep.join(filter(None, folders)),
        MAIN_CLASS,
        *(part for pair in values.items() for part in pair),
    ]


def _is_option(name: str) -> bool:
    return name.startswith(OPTION) and name.removeprefix(OPTION).isdecimal()


def in_brackets(host: str) -> str:
    """A host as Spark takes it: an address of IPv6 in brackets.

    >>> in_brackets("10.0.0.7"), in_brackets("fd00::7"), in_brackets("[fd00::7]")
    ('10.0.0.7', '[fd00::7]', '[fd00::7]')
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def environment_of(environment: Mapping[str, str], spark_home: Path, folder: Path) -> dict[str, str]:
    """The environment of Spark and of its Python processes. `folder`: where modules of Python steps are, too."""
    path = os.pathsep.join(filter(None, [str(folder), environment.get("PYTHONPATH", "")]))
    return {**environment, "SPARK_HOME": str(spark_home), "PYTHONPATH": path}


def main(arguments: Sequence[str]) -> None:
    """Replaces this process by the executor. Exit code 1 where it is called otherwise."""
    specification = importlib.util.find_spec("pyspark")
    if list(arguments) != ["executor"] or specification is None or specification.origin is None:
        sys.exit("usage: python -m ottla_pipeline.running.executor executor, with pyspark, in a pod that Spark makes")
    if absent := missing(os.environ):
        sys.exit(f"a driver of Spark sets {', '.join(absent)}: this is for pods of spec.executors")
    home = Path(specification.origin).parent
    program = command(os.environ, home)
    os.execvpe(program[0], program, environment_of(os.environ, home, Path.cwd()))


if __name__ == "__main__":
    main(sys.argv[1:])
