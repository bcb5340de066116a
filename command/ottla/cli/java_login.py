"""The login to ZooKeeper as an operator of Apache Kafka has it: KAFKA_OPTS and the section Client of a JAAS file.

    KAFKA_OPTS=-Djava.security.auth.login.config=/etc/kafka/zookeeper_jaas.conf

A process without a JVM has no Java properties, so they are read from the variable that Kafka's scripts give to Java.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from ottla_broker.config import ConfigError
from ottla_broker.config.zookeeper_security import login_of
from ottla_broker.security.sasl.jaas import JaasError, parse_login_file

VARIABLE = "KAFKA_OPTS"
_FILE = "java.security.auth.login.config"
_SECTION = "zookeeper.sasl.clientconfig"
_IS_USED = "zookeeper.sasl.client"


class JavaLoginError(ValueError):
    """The file cannot be read or used. The message names the variable and the file, and has no value of it."""


def jaas_line(environment: Mapping[str, str]) -> str | None:
    """The login module for ZooKeeper, as a line of `sasl.jaas.config`; None when there is none.

    Raises:
        JavaLoginError: KAFKA_OPTS or the file that it names cannot be read, or says two things.

    Source: org.apache.kafka.common.security.JaasUtils.isZkSaslEnabled.
    """
    properties = java_properties(environment.get(VARIABLE, ""))
    path = properties.get(_FILE, "").removeprefix("=").removeprefix("file:")
    if not path:
        return None
    section = properties.get(_SECTION, "Client")
    try:
        line = parse_login_file(Path(path).read_text("utf-8"), section)
    except OSError as error:
        raise JavaLoginError(f"{VARIABLE}: {_FILE}={path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise JavaLoginError(f"{VARIABLE}: {_FILE}={path}: is not UTF-8") from None
    except JaasError as error:
        raise JavaLoginError(f"{VARIABLE}: {_FILE}={path}: {error}") from None
    if line is None:
        return None
    try:
        login_of(line)
    except ConfigError as error:
        raise JavaLoginError(f"{VARIABLE}: {_FILE}={path}: section {section}: {error.allowed}") from None
    if properties.get(_IS_USED, "true").lower() != "true":
        raise JavaLoginError(f"{VARIABLE}: {path} has a section {section}, and {_IS_USED} says that it is not used")
    return line


def java_properties(options: str) -> dict[str, str]:
    """The properties of a command line of Java; the last of a name counts.

    >>> java_properties("-Xmx1g -Da.b=c -Dd '-De=f g'")
    {'a.b': 'c', 'd': '', 'e': 'f g'}

    Raises:
        JavaLoginError: a quote is not closed.
    """
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise JavaLoginError(f"{VARIABLE}: {error}") from None
    found = (word[2:].partition("=") for word in words if word.startswith("-D"))
    return {name: value for name, _, value in found}
