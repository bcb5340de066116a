"""The settings of the clients of a secure fleet, as each kind of client reads them. Pure.

NAME.properties         Java: --command-config and the like, Properties.load
NAME.librdkafka.conf    kcat -F, and `key=value` lines for whatever is made of librdkafka
NAME.spark.json         options of Spark's Kafka source and sink
"""

from __future__ import annotations

import json
from pathlib import Path

from ottla_broker.config.properties import format_properties

MECHANISM = "SCRAM-SHA-512"
SUFFIXES = (".properties", ".librdkafka.conf", ".spark.json")
_HEAD = "# written by ottla local; changes are lost at the next start\n"


def client_files(user: str, password: str, bootstrap: str, authority: Path) -> dict[str, str]:
    """The files of one user, by name.

    Args:
        password: letters, digits, `-` and `_`, which no kind of file quotes.
        bootstrap: "host:port,host:port".
        authority: the certificate that is trusted, in PEM.
    """
    java = java_settings(user, password, bootstrap, authority)
    librdkafka = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority),
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
    }
    texts = (
        _HEAD + format_properties(java),
        _HEAD + "".join(f"{key}={value}\n" for key, value in librdkafka.items()),
        json.dumps({f"kafka.{key}": value for key, value in java.items()}, indent=1) + "\n",
    )
    return {f"{user}{suffix}": text for suffix, text in zip(SUFFIXES, texts, strict=True)}


def java_settings(user: str, password: str, bootstrap: str, authority: Path) -> dict[str, str]:
    """The settings of a Java client. See `client_files`."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{login} required username="{user}" password="{password}";',
    }
