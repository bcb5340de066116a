"""What becomes of the environment that Spark gives to an executor's pod."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla_pipeline.running.executor import command, environment_of

POD = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_EXECUTOR_POD_NAME": "delays-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dspark.driver.port=7078",
    "SPARK_JAVA_OPTIONS": "not ours",
}


def test_an_executor_is_the_program_that_sparks_own_entry_point_starts() -> None:
    assert command(POD, Path("/spark")) == [
        "java", "-Dspark.driver.port=7078", "-Dlast=1", "-Xms1024m", "-Xmx1024m", "-cp", "/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url", "spark://CoarseGrainedScheduler@10.0.0.1:7078", "--executor-id", "3", "--cores", "2",
        "--app-id", "spark-1", "--hostname", "10.0.0.2", "--resourceProfileId", "0", "--podName", "delays-exec-3",
    ]  # fmt: skip


def test_the_java_and_the_class_path_of_the_image_count() -> None:
    found = command({**POD, "JAVA_HOME": "/java", "SPARK_CLASSPATH": "/mine/*"}, Path("/spark"))
    assert found[0] == "/java/bin/java" and "/mine/*:/spark/jars/*" in found
    assert "[fd00::2]" in command({**POD, "SPARK_EXECUTOR_POD_IP": "fd00::2"}, Path("/spark"))


def test_python_finds_the_modules_of_the_working_directory_and_of_the_image() -> None:
    found = environment_of({"PYTHONPATH": "/opt/ottla", "A": "b"}, Path("/spark"), Path("/claim"))
    assert found == {"PYTHONPATH": "/claim:/opt/ottla", "A": "b", "SPARK_HOME": "/spark"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["executor"], "SPARK_DRIVER_URL", marks=[pytest.mark.spark]),  # without pyspark it says its usage
        ([], "usage: "),
        (["driver"], "usage: "),
    ],
)
def test_outside_of_such_a_pod_it_says_what_it_is_for(arguments: list[str], said: str) -> None:
    program = [sys.executable, "-m", "ottla_pipeline.running.executor", *arguments]
    found = subprocess.run(program, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert found.returncode == 1 and said in found.stderr
