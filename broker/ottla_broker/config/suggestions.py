"""Names the known name that is most like an unknown one, for messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ottla_broker.config.definitions import BROKER_KEYS
from ottla_broker.config.definitions.topics import BROKER_DEFAULTS, TOPIC_KEYS

_OF_A_LISTENER = "listener.name."


def is_meant(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known one that is most like it, or "".

    >>> is_meant("stpes", ["source", "steps"]), is_meant("x", ["source", "steps"])
    ('; is steps meant?', '')
    """
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1)
    return f"; is {close[0]} meant?" if close else ""


def topic_key_is_meant(name: str) -> str:
    """`is_meant` of an unknown topic key; of a broker key, the topic key that has it as default.

    >>> topic_key_is_meant("retention.m"), topic_key_is_meant("log.roll.hours")
    ('; is retention.ms meant?', '; is segment.ms meant?')
    """
    of_broker = next((key for key, names in BROKER_DEFAULTS.items() if name in names), None)
    return is_meant(name, TOPIC_KEYS) if of_broker is None else f"; is {of_broker} meant?"


def broker_key_is_meant(name: str) -> str:
    """`is_meant` of an unknown broker key, with or without the prefix of a listener; of a topic key, its default's.

    >>> broker_key_is_meant("min.insync.replica"), broker_key_is_meant("listener.name.client.max.conections")
    ('; is min.insync.replicas meant?', '; is listener.name.client.max.connections meant?')
    >>> broker_key_is_meant("segment.index.bytes")
    '; is log.index.size.max.bytes meant?'
    """
    if name in BROKER_DEFAULTS:
        return f"; is {BROKER_DEFAULTS[name][0]} meant?"
    known: Iterable[str] = BROKER_KEYS
    if name.startswith(_OF_A_LISTENER):
        prefix = ".".join(name.split(".")[:3])
        known = [f"{prefix}.{key}" for key in BROKER_KEYS]
    return is_meant(name, known)
