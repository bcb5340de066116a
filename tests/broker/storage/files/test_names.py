"""The names of partition directories."""

from __future__ import annotations

from ottla_broker.records.ids import TopicPartition
from ottla_broker.storage.files import names


def test_directory_names_are_distinguished() -> None:
    assert names.parse_partition_directory("a-b-3") == TopicPartition("a-b", 3)
    assert names.parse_partition_directory("a-b") is None
    aside = names.renamed_directory_name(TopicPartition("t" * 249, 12), "0" * 32, names.DELETE_DIRECTORY)
    assert len(aside) == 255
    assert names.parse_partition_directory(aside) is None
    assert names.is_renamed_directory(aside, names.DELETE_DIRECTORY)
    assert not names.is_renamed_directory("t-delete-0", names.DELETE_DIRECTORY)
