"""Refuses secrets among the configuration keys of a document: what they hold would stand in a ConfigMap.

A key is secret when it has Kafka's type PASSWORD, under every prefix: `ssl.key.password`,
`listener.name.client.plain.sasl.jaas.config`. Brokers and clients name them alike; librdkafka has names of its own
for what Java's clients take as values of that type (`ssl.key.pem`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.config import find_key
from ottla_broker.security.client_settings import SECRET_KEYS
from ottla_documents.schema.marks import Problem


def without_secrets(config: Mapping[str, str], path: str, instead: str, problems: list[Problem]) -> dict[str, str]:
    """The keys of `config` that are no secrets; a problem for each that is, which never shows its value.

    Args:
        path: of the mapping, such as "spec.brokers.config".
        instead: the field that will take it from a Secret.

    >>> problems = []
    >>> keys = {"ssl.key.password": "x", "a": "b"}
    >>> without_secrets(keys, "spec.brokers.config", "configSecrets", problems), str(problems[0])[:49]
    ({'a': 'b'}, 'spec.brokers.config.ssl.key.password: is a secret')
    """
    kept = {}
    for name, text in config.items():
        config_key = find_key(name)
        if (config_key is not None and config_key.is_sensitive) or name in SECRET_KEYS:
            message = (
                "is a secret, and this field is stored in a ConfigMap; it will be taken from a Secret that "
                f"{instead} names, a field that this release does not have"
            )
            problems.append(Problem(f"{path}.{name}", message))
        else:
            kept[name] = text
    return kept
