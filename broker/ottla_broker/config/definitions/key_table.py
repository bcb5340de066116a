"""The tables of keys in `*.keys`, and their notation: one line a key.

NAME  TYPE = DEFAULT [ALLOWED] IMPORTANCE UPDATE-MODE [internal] : DOCUMENTATION [@NOTE]

TYPE         as Apache Kafka's documentation has it
DEFAULT      null; "" for an empty text; [] for an empty list; else as in a properties file
ALLOWED      1..5, 1.. and ..5: bounds of a number; 1..5|-1: and one more value; {a,b}: one of these words, of a list
             each; else the name of a rule in `RULES`
UPDATE-MODE  read-only, per-broker or cluster-wide (KIP-226)
internal     Apache Kafka does not document it
NOTE         a name in `notes`: why the key changes nothing

background.threads  int = 10 1.. high cluster-wide : Threads for background tasks. @ONE_LOOP
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ottla_broker.config.definitions import notes
from ottla_broker.config.releases import any_release, protocol_version, throttled_replicas
from ottla_broker.config.types import (
    Bounds,
    ConfigKey,
    ConfigType,
    Importance,
    Known,
    OneOf,
    UpdateMode,
    Validator,
)

RULES: Final[Mapping[str, Validator]] = {
    "any-release": any_release,
    "protocol-version": protocol_version,
    "throttled-replicas": throttled_replicas,
}

_TYPES: Final = {one.name.lower(): one for one in ConfigType}
_IMPORTANCE: Final = {one.value: one for one in Importance}
_MODES: Final = {one.value: one for one in UpdateMode}
_READERS: Final[Mapping[ConfigType, Callable[[str], Any]]] = {
    ConfigType.BOOLEAN: {"true": True, "false": False}.__getitem__,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: lambda text: tuple(text.split(",")),
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}
_EMPTY: Final[Mapping[str, Any]] = {"null": None, '""': "", "[]": ()}


def read_keys(table: str, known: Known = Known.KAFKA) -> Iterator[ConfigKey]:
    """The keys of one table, in its order.

    Args:
        table: the name of the file, without `.keys`.
        known: why these keys are known.

    Raises:
        ValueError: a line is not in the notation; the message names it.
    """
    path = Path(__file__).with_name(f"{table}.keys")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line and line[0] != "#":
            try:
                yield parse_key(line, known)
            except (ValueError, LookupError, AttributeError) as error:
                raise ValueError(f"{path.name}, line {number}: {line!r} is not in the notation of keys") from error


def parse_key(line: str, known: Known = Known.KAFKA) -> ConfigKey:
    """The key of one line.

    >>> found = parse_key("background.threads  int = 10 1.. high cluster-wide : Threads for tasks. @ONE_LOOP")
    >>> found.name, found.default, str(found.validator), found.update_mode.value, found.note == notes.ONE_LOOP
    ('background.threads', 10, 'at least 1', 'cluster-wide', True)
    """
    values, _, text = line.partition(" : ")
    name, type_name, _, default, *rest = values.split()
    allowed = rest.pop(0) if rest[0] not in _IMPORTANCE else ""
    importance, mode, *internal = rest
    documentation, _, note = text.partition(" @")
    if not documentation or internal not in ([], ["internal"]):
        raise ValueError("it has another form")
    type_ = _TYPES[type_name]
    return ConfigKey(
        name,
        type_,
        _EMPTY[default] if default in _EMPTY else _READERS[type_](default),
        _IMPORTANCE[importance],
        _MODES[mode],
        documentation,
        _validator(allowed) if allowed else None,
        getattr(notes, note) if note else "",
        bool(internal),
        known,
    )


def _validator(text: str) -> Validator:
    if text in RULES:
        return RULES[text]
    if text[0] == "{":
        return OneOf(tuple(text.strip("{}").split(",")))
    bounds, _, also = text.partition("|")
    low, dots, high = bounds.partition("..")
    if not dots or high.startswith("."):
        raise ValueError("neither bounds nor a rule")
    return Bounds(_number(low), _number(high), _number(also))


def _number(text: str) -> float | None:
    if not text:
        return None
    return int(text) if text.lstrip("-").isdecimal() else float(text)
