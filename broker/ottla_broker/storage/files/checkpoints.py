"""The text formats of the small files: offset checkpoints, leader epochs, partition.metadata, meta.properties. Pure.

A checkpoint is a version line, a count line and one line per entry. Text that does not parse raises `CheckpointError`
with the file's name: the broker never guesses. Source: CheckpointFile of Apache Kafka.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

from ottla_broker.records.ids import TopicPartition

_VERSION = 0


class CheckpointError(ValueError):
    """A small file whose content does not parse."""


def _lines(name: str, data: bytes, fields: int) -> list[list[str]]:
    try:
        lines = data.decode().split("\n")
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        raise CheckpointError(f"{name}: a version and a count are missing at its start") from None
    if version != _VERSION:
        raise CheckpointError(f"{name}: version {version} is not known, only {_VERSION}")
    entries = [line.split(" ") for line in lines[2:] if line]
    if len(entries) != count:
        raise CheckpointError(f"{name}: {count} entries are announced and {len(entries)} found")
    for entry in entries:
        if len(entry) != fields:
            raise CheckpointError(f"{name}: malformed line {' '.join(entry)!r}")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """
    >>> encode_offsets({TopicPartition("t", 0): 7})
    b'0\\n1\\nt 0 7\\n'
    """
    lines = [f"{partition.topic} {partition.partition} {offset}\n" for partition, offset in sorted(offsets.items())]
    return f"{_VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def decode_offsets(name: str, data: bytes) -> dict[TopicPartition, int]:
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in _lines(name, data, 3)
        }
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{name}: {error}") from None


def encode_epochs(entries: Sequence[tuple[int, int]]) -> bytes:
    """(leader epoch, start offset) pairs."""
    lines = [f"{epoch} {offset}\n" for epoch, offset in entries]
    return f"{_VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def decode_epochs(name: str, data: bytes) -> list[tuple[int, int]]:
    try:
        return [(int(epoch), int(offset)) for epoch, offset in _lines(name, data, 2)]
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{name}: {error}") from None


def encode_uuid(value: bytes) -> str:
    """16 bytes as Kafka writes them: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def decode_uuid(text: str) -> bytes:
    """The 16 bytes. Raises ValueError when the text is not 22 characters of base64."""
    value = base64.urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise ValueError(f"{text!r} is not a uuid")
    return value


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(name: str, data: bytes) -> bytes:
    """The topic id."""
    values = dict(line.split(": ", 1) for line in data.decode(errors="replace").splitlines() if ": " in line)
    try:
        if int(values["version"]) != _VERSION:
            raise CheckpointError(f"{name}: version {values['version']} is not known, only {_VERSION}")
        return decode_uuid(values["topic_id"])
    except CheckpointError:
        raise
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{name}: no valid topic id: {error}") from None


def encode_properties(values: Mapping[str, str]) -> bytes:
    """A Java properties file."""
    lines = ["#\n"]
    for key, value in values.items():
        escaped = "".join("\\" + char if char in "\\:=#!" else char for char in value)
        lines.append(f"{key}={escaped}\n")
    return "".join(lines).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    values: dict[str, str] = {}
    for line in data.decode(errors="replace").splitlines():
        line = line.strip()
        if not line or line[0] in "#!" or "=" not in line:
            continue
        key, _, value = line.partition("=")
        plain: list[str] = []
        is_escaped = False
        for char in value.strip():
            if char == "\\" and not is_escaped:
                is_escaped = True
                continue
            is_escaped = False
            plain.append(char)
        values[key.strip()] = "".join(plain)
    return values


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """The marker of a clean shutdown. `broker_epoch` is -1 when the broker has none (KIP-966)."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch, -1 when the marker has none, as those of older versions."""
    try:
        value = json.loads(data)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return value if isinstance(value, int) else -1
