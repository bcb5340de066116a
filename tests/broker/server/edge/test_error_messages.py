"""Error messages that quote more than a string of the wire protocol holds."""

from __future__ import annotations

import pytest

from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.generated.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla_broker.server.edge.error_messages import MAX_MESSAGE_BYTES, shorten_error_messages


@pytest.mark.parametrize("version", [4, 7], ids=["old encoding", "flexible"])
@pytest.mark.parametrize("letter", ["a", "ф", "\U0001f600"], ids=["1 byte", "2 bytes", "4 bytes"])
def test_a_message_is_cut_to_what_a_string_holds(letter: str, version: int) -> None:
    message = letter * MAX_MESSAGE_BYTES + "!"
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=17, error_message=message)])
    assert shorten_error_messages(response)
    frame = b"".join(bytes(one) for one in codec.frame_response(ApiKey.CREATE_TOPICS, version, 1, response))  # type: ignore[arg-type]
    _, found = codec.read_response_frame(ApiKey.CREATE_TOPICS, version, memoryview(frame)[4:])
    (topic,) = found.topics
    assert topic.error_message.removesuffix("...") == letter * (len(topic.error_message) - 3)
    assert MAX_MESSAGE_BYTES - 4 < len(topic.error_message.encode()) <= MAX_MESSAGE_BYTES


def test_a_message_that_fits_stays_as_it_is() -> None:
    message = "a" * MAX_MESSAGE_BYTES
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=17, error_message=message)])
    assert not shorten_error_messages(response)
    assert response.topics[0].error_message == message
