"""Refuses secrets among the configuration keys of a document: what they hold would stand in a ConfigMap.

A key is secret when it has Kafka's type PASSWORD, under every prefix: `ssl.key.password`,
`listener.name.client.plain.sasl.jaas.config`. Brokers and clients name them alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.config import find_key
from ottla_documents.fields import Fields


def without_secrets(fields: Fields, config: Mapping[str, str], instead: str) -> dict[str, str]:
    """The keys of `config` that are no secrets; a problem for each that is, which never shows its value.

    Args:
        instead: the field that will take it from a Secret.

    >>> problems = []
    >>> without_secrets(Fields({}, "spec.brokers", problems), {"ssl.key.password": "x", "a": "b"}, "configSecrets")
    {'a': 'b'}
    >>> str(problems[0])[:49]
    'spec.brokers.config.ssl.key.password: is a secret'
    """
    kept = {}
    for name, text in config.items():
        known = find_key(name)
        if known is not None and known.is_sensitive:
            fields.problem(
                f"config.{name}",
                "is a secret, and this field is stored in a ConfigMap; it will be taken from a Secret that "
                f"{instead} names, a field that this release does not have",
            )
        else:
            kept[name] = text
    return kept
