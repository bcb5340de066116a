"""Subscriptions by regular expression, in the syntax of RE2 (KIP-848). Pure.

Apache Kafka uses RE2/J; the library here is RE2 itself, of the same syntax. Matching takes time linear in the length of
a name, whatever the expression is: a client cannot stop a broker with one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import re2


class InvalidExpression(ValueError):
    """The text is no regular expression of RE2; the message says why."""


@lru_cache(maxsize=1_000)
def compiled(regex: str) -> Any:
    """The expression, ready to match.

    Raises:
        InvalidExpression: RE2 refuses it.

    >>> compiled("(?=a)")
    Traceback (most recent call last):
    ottla_broker.groups.consumer.topic_expressions.InvalidExpression: invalid perl operator: (?=
    """
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise InvalidExpression(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def matching(regexes: Iterable[str], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """For each expression the names that match it as a whole, sorted.

    >>> matching(["t.*", "u"], ["uu", "u", "t2", "t1"])
    {'t.*': ('t1', 't2'), 'u': ('u',)}
    """
    every = list(names)
    return {regex: tuple(sorted(_matches(regex, every))) for regex in regexes}


def _matches(regex: str, names: Iterable[str]) -> Iterator[str]:
    pattern = compiled(regex)
    return (name for name in names if pattern.fullmatch(name) is not None)
