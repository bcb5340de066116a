"""Who may not describe a resource is not told whether it exists: asks about what exists and about what is missing.

The two answers are the same but for the name, and they name nothing that the request has not named. It holds for every
row of the tables, whatever the API does: nothing of it is written here a second time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla_broker.authorization.resources import ResourceType
from tests.beside.security.matrix import Side
from tests.beside.security.names import (
    GROUP,
    IDLE_GROUP,
    KINDS,
    MISSING,
    OTHER_TOPIC,
    TOPIC,
    TRANSACTIONAL_ID,
)
from tests.beside.security.rows import NAMES_IDS, Question, Row

_NAMES = (TOPIC, OTHER_TOPIC, IDLE_GROUP, TRANSACTIONAL_ID, "<member>", "__consumer_offsets")
"""What exists, and is long enough to be searched for."""


_OF_THE_MOMENT = ("producer_epoch",)
"""Each question about a transaction opens another one."""


_PARTITIONS = ("partition", "partition_index", "partition_id", "index", "partitions", "partition_indexes")
_NO_PARTITION = 99


class Pair(NamedTuple):
    """What exists, and the same about what does not."""

    existing: Question
    missing: Question

    def __str__(self) -> str:
        return str(self.existing)


def pairs(row: Row) -> Iterator[Pair]:
    """For each type of what the request names: with no right; and, of a type on which it needs one, with all that it
    needs on what is of other types.

    Not with rights on the cluster: who may change the whole cluster may know what is in it.
    """
    variant, names = next(iter(row.variants.items()))
    for kind in KINDS:
        if not names.of(kind) or names.topics is None:
            continue
        others = tuple(right for right in row.rights(names) if right.resource_type not in (kind, ResourceType.CLUSTER))
        if kind not in {needed for _, needed in row.needs}:
            others = ()
        for rights in dict.fromkeys(((), others)):
            for version in row.own_versions:
                yield Pair(
                    Question(row, variant, names, rights, version),
                    Question(row, f"missing {kind.label}", names.missing(kind), rights, version),
                )


def reason(pair: Pair) -> str:
    """Why it may be told; "" where it may not."""
    row, version = pair.existing.row, pair.existing.version
    if row.about == "by id" or version >= NAMES_IDS.get(row.api_key, version + 1):
        return "an id is 122 random bits: who knows it has been told, and Apache Kafka tells an id that is unknown too"
    return ""


def told(side: Side, pair: Pair) -> str:
    """What the answers tell; "" where they tell nothing."""
    existing, missing = (side.ask(question) for question in pair)
    if existing is None:
        return ""
    if not isinstance(existing, dict):
        return f"answer: {existing}"
    alike = (_renamed(existing, pair.existing), _renamed(missing, pair.missing))
    return "" if alike[0] == alike[1] else f"{alike[0]} where it exists, {alike[1]} where it does not"


def told_of_partitions(side: Side, question: Question) -> str:
    """As `told`, of partition 0 and of one that the topic has not got."""
    first, none = side.ask(question), side.ask(question, _of_another_partition)
    if not isinstance(first, dict):
        return ""
    alike = _of_the_first(first), _of_the_first(none)
    return "" if alike[0] == alike[1] else f"{alike[0]} of partition 0, {alike[1]} of partition {_NO_PARTITION}"


def _of_another_partition(value: Any, field: str = "") -> Any:
    """The body of a request with another number in place of each partition's."""
    if hasattr(value, "__slots__"):
        for name in value.__slots__:
            setattr(value, name, _of_another_partition(getattr(value, name), name))
        return value
    if isinstance(value, list):
        return [_of_another_partition(one, field) for one in value]
    return _NO_PARTITION if field in _PARTITIONS and value == 0 else value


def _of_the_first(answer: Any, field: str = "") -> Any:
    if isinstance(answer, dict):
        return {name: _of_the_first(part, name) for name, part in answer.items() if name not in _OF_THE_MOMENT}
    if isinstance(answer, list):
        return [_of_the_first(one, field) for one in answer]
    return 0 if field in _PARTITIONS and answer == _NO_PARTITION else answer


def named_unasked(side: Side, question: Question) -> list[str]:
    """The names in an answer that are not in the request, of somebody without any right."""
    assert question.rights == ()
    words = list(_words(side.ask(question)))
    asked = {name for names in question.names if names for name in names}
    return [name for name in _NAMES if name not in asked and any(name in word for word in words)]


def _words(answer: Any) -> Iterator[str]:
    if isinstance(answer, str):
        yield answer
    elif isinstance(answer, (dict, list)):
        for part in answer.values() if isinstance(answer, dict) else answer:
            yield from _words(part)


def _renamed(answer: Any, question: Question) -> Any:
    """With one word in place of each name, in messages too."""
    if isinstance(answer, dict):
        return {field: _renamed(part, question) for field, part in answer.items() if field not in _OF_THE_MOMENT}
    if isinstance(answer, list):
        return [_renamed(one, question) for one in answer]
    if isinstance(answer, str):
        for name in (TOPIC, IDLE_GROUP, TRANSACTIONAL_ID, MISSING):
            answer = answer.replace(name, "<name>")
        return "<name>" if answer == GROUP else answer
    return answer
