"""What we write, kio and kafka-python read and write back to the same bytes, in every version that they know.

Both follow Kafka 4: minima of KIP-896, none of the APIs between controller and broker. Those are compared with the
Java client in `test_kafka_jar.py`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kio.index import UnknownEntity, load_entity_schema
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla_broker.protocol.generator.facts import snake_case
from tests.broker.protocol.messages import FEW_EXAMPLES, Case, drawn, messages


def _kio_schema(case: Case) -> Any:
    if case.definition.api_key is None:
        name = snake_case(case.message.name)
        kind = EntityType.header if name.endswith("_header") else EntityType.data
    else:
        name = api_key_map.get(case.definition.api_key, "")
        kind = EntityType.request if case.message.kind == "request" else EntityType.response
    try:
        return load_entity_schema(name, case.version, kind)
    except UnknownEntity:
        return None


def _kafka_python_classes() -> dict[tuple[int, str], Any]:
    for package in ("admin", "consumer", "metadata", "producer", "sasl"):
        import_module(f"kafka.protocol.{package}")

    def below(cls: Any) -> Iterator[Any]:
        for sub in cls.__subclasses__():
            yield sub
            yield from below(sub)

    return {
        (cls.API_KEY, cls.type): cls
        for cls in below(ApiMessage)
        if getattr(cls, "_json", None) is not None and cls._class_version is None
    }


def _kafka_python_class(case: Case) -> Any:
    cls = KAFKA_PYTHON.get((case.definition.api_key, case.message.kind))
    if cls is None or not cls.valid_versions[0] <= case.version <= cls.valid_versions[1]:
        return None
    return cls


KAFKA_PYTHON = _kafka_python_classes()
OF_KIO = messages(lambda case: _kio_schema(case) is not None)
OF_KAFKA_PYTHON = messages(lambda case: _kafka_python_class(case) is not None)


def test_both_implementations_have_most_apis_of_clients() -> None:
    assert sum(len(one.values[0]) for one in OF_KIO) > 330
    assert sum(len(one.values[0]) for one in OF_KAFKA_PYTHON) > 320


@pytest.mark.parametrize("versions", OF_KIO)
@FEW_EXAMPLES
@given(data=st.data())
def test_kio_reads_and_writes_the_same_bytes(versions: list[Case], data: st.DataObject) -> None:
    for case, value in drawn(data, versions, tame=True):
        schema = _kio_schema(case)
        wire = case.write(value)
        theirs, size = entity_reader(schema)(wire, 0)
        assert size == len(wire)
        with io.BytesIO() as stream:
            entity_writer(schema)(stream, theirs)
            assert stream.getvalue() == wire


@pytest.mark.parametrize("versions", OF_KAFKA_PYTHON)
@FEW_EXAMPLES
@given(data=st.data())
def test_kafka_python_reads_and_writes_the_same_bytes(versions: list[Case], data: st.DataObject) -> None:
    for case, value in drawn(data, versions, tame=True):
        if case.message.name == "ApiVersionsResponse":
            value.error_code = 0  # kafka-python reads the answer with an error as version 0, as KIP-511 wants it
        wire = case.write(value)
        theirs = _kafka_python_class(case).decode(wire, version=case.version)
        theirs._header = None  # decode leaves it unset, and encode asks for it
        assert bytes(theirs.encode(version=case.version)) == wire
