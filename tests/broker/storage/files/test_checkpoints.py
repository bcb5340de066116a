"""The text formats of the small files."""

from __future__ import annotations

import pytest

from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files import checkpoints
from ottla_broker.storage.files.checkpoints import CheckpointError


def test_checkpoints_have_the_text_of_kafka_and_are_read_again() -> None:
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a.b-c", 0): 0}
    data = checkpoints.encode_offsets(offsets)
    assert data == b"0\n2\na.b-c 0 0\nb 1 7\n"
    assert checkpoints.decode_offsets("f", data) == offsets
    assert checkpoints.encode_epochs([(0, 0), (2, 15)]) == b"0\n2\n0 0\n2 15\n"
    assert checkpoints.decode_epochs("f", b"0\n2\n0 0\n2 15\n") == [(0, 0), (2, 15)]


@pytest.mark.parametrize("data", [b"", b"0", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 x\n", b"\xff"])
def test_the_error_of_a_malformed_checkpoint_has_its_name(data: bytes) -> None:
    with pytest.raises(CheckpointError, match="recovery-point"):
        checkpoints.decode_offsets("recovery-point", data)


def test_partition_metadata_has_the_topic_id_as_kafka_writes_it() -> None:
    topic_id = bytes(range(16))
    data = checkpoints.encode_partition_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert checkpoints.decode_partition_metadata("f", data) == topic_id
    with pytest.raises(CheckpointError):
        checkpoints.decode_partition_metadata("f", b"version: 0\n")


def test_properties_are_read_with_their_escapes() -> None:
    values = {"cluster.id": "a=b:c", "broker.id": "7"}
    assert checkpoints.decode_properties(checkpoints.encode_properties(values)) == values
    assert checkpoints.decode_properties(b"#Sat Nov 21\nversion=0\nbroker.id = 7\n") == {
        "version": "0",
        "broker.id": "7",
    }


def test_the_clean_shutdown_marker_is_that_of_kafka() -> None:
    assert checkpoints.encode_clean_shutdown(-1) == b'{"version":0,"brokerEpoch":-1}'
    assert checkpoints.decode_clean_shutdown(b'{"version":0,"brokerEpoch":42}') == 42
    assert checkpoints.decode_clean_shutdown(b"") == -1
