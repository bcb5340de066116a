"""Finds Java and the jars of Apache Kafka 3.9.1 and ZooKeeper 3.9 that scripts/fetch-jars.sh downloads."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


class MissingRequirement(RuntimeError):
    """Java or the jars are missing; the message names the script that installs them."""


def cache_directory() -> Path:
    """`${OTTLA_CACHE:-~/.cache/ottla}`: the directory for downloads and builds outside the checkout."""
    return Path(os.environ.get("OTTLA_CACHE") or "~/.cache/ottla").expanduser()


def find_java() -> str:
    """The java on PATH, else in JAVA_HOME. MissingRequirement when there is none."""
    found = shutil.which("java") or shutil.which(os.path.join(os.environ.get("JAVA_HOME", ""), "bin", "java"))
    if found is None:
        raise MissingRequirement("Java is missing: run scripts/install-system.sh (Debian: openjdk-17-jdk-headless)")
    return found


def kafka_class_path() -> str:
    """The class path of Apache Kafka's broker, tools and Java client. MissingRequirement when the jars are missing."""
    return _class_path("jars", "kafka-clients-*.jar")


def zookeeper_class_path() -> str:
    """The class path of the ZooKeeper server. MissingRequirement when the jars are missing."""
    return _class_path("zookeeper-jars", "zookeeper-3.9.*.jar")


def _class_path(folder: str, witness: str) -> str:
    directory = cache_directory() / folder
    if not any(directory.glob(witness)):
        raise MissingRequirement(f"the jars are missing in {directory}: run scripts/fetch-jars.sh")
    return f"{directory}/*"
