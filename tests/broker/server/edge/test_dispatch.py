"""Every API has its handler; a handler that fails closes the connection of the request."""

from __future__ import annotations

import importlib
import inspect
import logging
import typing
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.adapters.clock import LoopClock
from ottla_broker.ports.coordination import ConnectionLoss, SessionExpired
from ottla_broker.protocol import codec
from ottla_broker.protocol.api import ApiKey
from ottla_broker.protocol.slices import SlicedResponse
from ottla_broker.server.edge import dispatch
from ottla_broker.server.edge.dispatch import ABOVE_KAFKA_3_9, LISTED, Dispatcher, FleetListing, Listing, listed
from ottla_broker.server.handler_api import RequestContext, Respond


class _Client:
    has_cluster_action = True
    access = None

    def __init__(self) -> None:
        self.ended_with: list[str] = []

    def fail(self, reason: str) -> None:
        self.ended_with.append(reason)


class _Fence:
    def __init__(self, error: Exception) -> None:
        self._error = error

    async def is_stale_broker_epoch(self, _: int) -> bool:
        raise self._error


async def _ended_with(error: Exception) -> str:
    """The reason that closes the connection of a LeaderAndIsr whose handler raises `error`."""
    clock, client = LoopClock(), _Client()
    dispatcher = Dispatcher(clock)
    dispatcher.services = SimpleNamespace(replica_manager=SimpleNamespace(fence=_Fence(error)))  # type: ignore[assignment]
    module = codec.module(ApiKey.LEADER_AND_ISR)
    request: Any = module.LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=1)
    body = b"".join(bytes(chunk) for chunk in module.write_request(7, request))
    context = RequestContext(client, int(ApiKey.LEADER_AND_ISR), 7, 1, "controller-1", 0.0)  # type: ignore[arg-type]
    dispatcher.dispatch(context, memoryview(body), 0)
    await clock.sleep(0)
    (reason,) = client.ended_with
    return reason


@pytest.mark.parametrize("error", [SessionExpired("the session has expired"), ConnectionLoss("the connection broke")])
async def test_a_request_that_needs_the_coordination_store_closes_its_connection_when_the_store_is_lost(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    assert await _ended_with(error) == f"LEADER_AND_ISR needs the coordination store: {error}"
    assert caplog.records == []


async def test_a_bug_in_a_handler_closes_the_connection_and_is_logged_with_its_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await _ended_with(KeyError("t-0")) == "internal error in LEADER_AND_ISR: KeyError('t-0')"
    (record,) = caplog.records
    assert (record.levelno, record.exc_info is not None) == (logging.ERROR, True)


def test_a_row_above_kafka_3_9_is_listed_in_a_fleet_of_ours_once_its_feature_is_finalized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = (
        FleetListing(Listing(ApiKey.HEARTBEAT, 0, 5, "heartbeat")),
        FleetListing(Listing(ApiKey.HEARTBEAT, 0, 6, "heartbeat"), "x", 2),
    )
    monkeypatch.setattr(dispatch, "ABOVE_KAFKA_3_9", rows)

    def highest(level: int, is_ours: bool) -> int:
        return {row.api_key: row.highest for row in listed({"x": level}, is_ours)}[ApiKey.HEARTBEAT]

    assert listed({"x": 2}, False) == LISTED
    assert [highest(level, True) for level in (0, 1, 2, 3)] == [5, 5, 6, 6]


@pytest.mark.parametrize(
    "listing", [*LISTED, *(row.listing for row in ABOVE_KAFKA_3_9)], ids=lambda listing: listing.module
)
def test_a_handler_takes_the_request_and_gives_the_response_of_its_api(listing: Listing) -> None:
    generated = codec.module(listing.api_key)
    name = codec.spec(listing.api_key).name
    request, response = getattr(generated, f"{name}Request"), getattr(generated, f"{name}Response")
    handle = importlib.import_module(f"ottla_broker.server.handlers.{listing.module}").handle
    types = typing.get_type_hints(handle)
    assert types["request"] is request
    if listing.calls_back:
        assert (types["respond"], types["return"]) == (Respond[response], type(None))
    else:
        assert inspect.iscoroutinefunction(handle)
        assert types["return"] in (response, response | SlicedResponse)
