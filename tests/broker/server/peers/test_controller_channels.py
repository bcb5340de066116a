"""The controller's queue to one broker: it continues after any failure of a request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.codec import EncodeError
from ottla_broker.server.peers import controller_channels
from ottla_broker.server.peers.controller_channels import _Channel, _QueuedRequest


class Client:
    """Responds to each request with itself; raises the `failures` first."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []

    async def connect(self) -> None:
        return

    async def send(self, api_key: int, version: int, request: Any) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return request

    def close(self) -> None:
        return


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoopClock]:
    monkeypatch.setattr(controller_channels, "_PAUSE_S", 0.0)
    made = LoopClock()
    made.on_task_failure = lambda name, error: None
    yield made
    made.cancel_all()


def open_channel(client: Any, clock: LoopClock) -> _Channel:
    return _Channel(2, client, clock, logging.LoggerAdapter(logging.getLogger("test"), {}))


def ask(channel: _Channel, request: str, answers: asyncio.Queue[str]) -> None:
    channel.put(_QueuedRequest(int(ApiKey.LEADER_AND_ISR), 7, request, answers.put_nowait))


async def test_a_response_that_its_callback_rejects_does_not_stop_the_queue_of_a_broker(clock: LoopClock) -> None:
    """It would end the task: the broker would get no request of its controller until its next registration."""
    channel = open_channel(Client(), clock)

    def refuse(response: Any) -> None:
        raise ValueError(response)

    answers: asyncio.Queue[str] = asyncio.Queue()
    channel.put(_QueuedRequest(int(ApiKey.STOP_REPLICA), 4, "first", refuse))
    ask(channel, "second", answers)
    assert await asyncio.wait_for(answers.get(), 10) == "second"
    channel.close()


async def test_a_request_is_sent_again_after_an_unexpected_error(
    clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client()
    client.failures = [EncodeError("it does not fit"), EncodeError("it does not fit")]
    channel = open_channel(client, clock)
    answers: asyncio.Queue[str] = asyncio.Queue()
    ask(channel, "first", answers)
    ask(channel, "second", answers)
    assert [await asyncio.wait_for(answers.get(), 10) for _ in range(2)] == ["first", "second"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    channel.close()
