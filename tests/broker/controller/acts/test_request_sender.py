"""Requests about every partition of the fleet: the controller builds them in steps, with other work in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla_broker.config import Endpoint
from ottla_broker.config.inter_broker import inter_broker_versions
from ottla_broker.controller import control_requests
from ottla_broker.controller.acts.metadata_waits import MetadataWaits
from ottla_broker.controller.acts.request_sender import RequestSender
from ottla_broker.controller.context import ControllerContext
from ottla_broker.controller.control_requests import (
    RequestBatch,
    add_full_leader_and_isr,
    add_full_update_metadata,
)
from ottla_broker.controller.values import LeaderAndIsr, RegisteredBroker, ReplicaAssignment, Topic
from ottla_broker.protocol.api import ApiKey

LISTENER = "PLAINTEXT"
VERSIONS = inter_broker_versions("3.9")
TOPICS, PARTITIONS, A_STEP = 6, 10, 20


class Channels:
    def __init__(self) -> None:
        self.sent: list[tuple[int, ApiKey, Any]] = []
        self.is_closed = False

    def open(self, broker: RegisteredBroker) -> None: ...

    def close(self, broker_id: int) -> None: ...

    def close_all(self) -> None:
        self.is_closed = True

    def send(
        self, broker_id: int, api_key: int, version: int, request: Any, on_response: Callable[[Any], None]
    ) -> None:
        assert not self.is_closed
        self.sent.append((broker_id, ApiKey(api_key), request))


class Turns:
    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.count = 0
        self._meanwhile = meanwhile

    async def sleep(self, delay_s: float) -> None:
        self.count += 1
        self._meanwhile()
        await asyncio.sleep(delay_s)


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> ControllerContext:
    monkeypatch.setattr(control_requests, "PARTITIONS_PER_STEP", A_STEP)
    found = ControllerContext(1, 0)
    for broker in (1, 2):
        found.brokers[broker] = RegisteredBroker(broker, 7, (Endpoint(LISTENER, f"h{broker}", 9092, "PLAINTEXT"),))
    for number in range(TOPICS):
        assignments = {index: ReplicaAssignment((1, 2)) for index in range(PARTITIONS)}
        found.add_topic(Topic(f"t{number}", bytes([number + 1]) * 16, assignments))
    for partition in found.partitions():
        found.leadership[partition] = LeaderAndIsr(1, 0, (1, 2), 0, 1)
    return found


def full_batch(context: ControllerContext) -> RequestBatch:
    batch = RequestBatch()
    add_full_leader_and_isr(batch, context, context.brokers)
    add_full_update_metadata(batch, context, context.brokers)
    return batch


def sender_of(context: ControllerContext, channels: Channels, clock: Any) -> RequestSender:
    return RequestSender(
        broker_id=1,
        clock=clock,
        context=context,
        channels=channels,
        listener=LISTENER,
        versions=VERSIONS,
        waits=MetadataWaits(),
        on_response=lambda response: None,
    )


async def test_a_large_batch_is_built_with_other_work_in_between_and_sent_in_order(context: ControllerContext) -> None:
    channels, turns = Channels(), Turns()
    assert await sender_of(context, channels, turns).send(full_batch(context)) == 4
    # The metadata once for all brokers, and the replicas of each.
    assert turns.count == 3 * TOPICS * PARTITIONS // A_STEP
    assert [(broker, api_key) for broker, api_key, _ in channels.sent] == [
        (1, ApiKey.LEADER_AND_ISR),
        (1, ApiKey.UPDATE_METADATA),
        (2, ApiKey.LEADER_AND_ISR),
        (2, ApiKey.UPDATE_METADATA),
    ]
    for _, _, request in channels.sent:
        named = [
            (topic.topic_name, state.partition_index)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
        assert named == [tuple(partition) for partition in context.partitions()]
    whole = full_batch(context).build(context, 1, LISTENER, VERSIONS)
    assert [(one.broker, one.api_key, one.body) for one in whole] == channels.sent


async def test_a_controller_that_resigns_meanwhile_sends_nothing_more(context: ControllerContext) -> None:
    channels = Channels()
    sender = sender_of(context, channels, Turns(lambda: sender.close()))
    assert await sender.send(full_batch(context)) == 0
    assert channels.sent == []


async def test_a_small_batch_is_sent_in_one_turn(context: ControllerContext) -> None:
    channels, turns = Channels(), Turns()
    batch = RequestBatch()
    batch.add_metadata([1, 2], list(context.partitions())[: A_STEP - 1])
    assert await sender_of(context, channels, turns).send(batch) == 2
    assert turns.count == 0
