"""Topics created on demand: concurrent requests for one topic share one creation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.config import BrokerConfig
from ottla_broker.config.topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla_broker.protocol.errors import ErrorCode
from ottla_broker.protocol.generated.create_topics import CreatableTopic
from ottla_broker.server.peers.topic_creation import TopicCreation

CONFIG = BrokerConfig.from_mapping(
    {
        "offsets.topic.num.partitions": "50",
        "offsets.topic.replication.factor": "3",
        "offsets.topic.segment.bytes": "100",
        "transaction.state.log.num.partitions": "7",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.segment.bytes": "200",
    }
)


class Controller:
    """Responds to each request when the test says so."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[tuple[list[CreatableTopic], asyncio.Future[dict[str, Any]]]] = asyncio.Queue()

    async def create_topics(self, topics: Sequence[CreatableTopic], timeout_ms: int) -> dict[str, Any]:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.requests.put_nowait((list(topics), answer))
        return await answer

    async def next_request(self) -> tuple[list[CreatableTopic], asyncio.Future[dict[str, Any]]]:
        return await self.requests.get()


def creation_with(controller: Controller) -> TopicCreation:
    logger = logging.LoggerAdapter(logging.getLogger("ottla.test"))
    return TopicCreation(CONFIG, LoopClock(), controller, logger)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", ["a", "b"])
async def test_topics_created_together_all_have_a_result_in_any_order_of_creation(first: str) -> None:
    controller = Controller()
    creation = creation_with(controller)
    alone = [asyncio.ensure_future(creation.create([name])) for name in ("a", "b")]
    answers = {name: (await controller.next_request())[1] for name in ("a", "b")}
    together = asyncio.ensure_future(creation.create(["a", "b"]))
    await asyncio.sleep(0)
    for name in sorted(answers, key=lambda name: name != first):
        answers[name].set_result({name: (ErrorCode.NONE, None)})
        await asyncio.wait([alone[0] if name == "a" else alone[1]])
    assert await together == {"a": ErrorCode.NONE, "b": ErrorCode.NONE}
    assert controller.requests.empty()


@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "configs"),
    [
        (
            CONSUMER_OFFSETS,
            50,
            3,
            {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "100"},
        ),
        (
            TRANSACTION_STATE,
            7,
            2,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": "200",
                "unclean.leader.election.enable": "false",
            },
        ),
    ],
)
async def test_an_internal_topic_has_the_settings_of_its_keys(
    name: str, partitions: int, replicas: int, configs: dict[str, str]
) -> None:
    controller = Controller()
    created = asyncio.ensure_future(creation_with(controller).create_internal(name))
    (topic,), answer = await controller.next_request()
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (name, partitions, replicas)
    assert {config.name: config.value for config in topic.configs} == configs
    answer.set_result({name: (ErrorCode.NONE, None)})
    assert await created is ErrorCode.NONE
