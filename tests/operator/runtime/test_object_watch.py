"""A list and the watches after it, against an API server whose watches end, break off or forget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from ottla_operator.api.objects import KAFKA_TOPIC, Obj, ResourceKind
from ottla_operator.ports import ApiError
from ottla_operator.runtime.object_watch import ObjectWatch
from simulation.loop import VirtualTimeLoop

Event = tuple[str, Obj]
Follow = Callable[["Server", float], ObjectWatch]


def _event(kind: str, version: int) -> Event:
    return kind, {"metadata": {"name": f"t{version}", "resourceVersion": str(version)}}


class Server:
    """Each watch gives its events and then ends, or raises its error; the last one lasts."""

    def __init__(self, *watches: list[Event | ApiError]) -> None:
        self.watches = list(watches)
        self.since: list[str] = []
        self.lists = 0
        self.seen: list[tuple[str, str]] = []
        self.list_errors: list[ApiError] = []

    async def watch(
        self, kind: ResourceKind, namespace: str | None, version: str, selector: str = ""
    ) -> AsyncGenerator[Event]:
        self.since.append(version)
        if not self.watches:
            await asyncio.get_running_loop().create_future()
        for event in self.watches.pop(0):
            if isinstance(event, ApiError):
                raise event
            yield event

    async def relist(self, kind: ResourceKind, namespace: str | None) -> str:
        if self.list_errors:
            raise self.list_errors.pop(0)
        self.lists += 1
        return str(100 * self.lists)

    def on_event(self, event: str, obj: Obj) -> None:
        if obj["metadata"]["name"] == "t13":
            raise ValueError("a bug")
        self.seen.append((event, obj["metadata"]["name"]))


@pytest.fixture
def follow() -> Follow:
    def run(server: Server, seconds: float) -> ObjectWatch:
        loop = VirtualTimeLoop()

        async def main() -> ObjectWatch:
            watch = ObjectWatch(KAFKA_TOPIC, None, server, server.relist, server.on_event)
            task = asyncio.create_task(watch.run())
            await asyncio.sleep(seconds)
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return watch

        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    return run


def test_a_watch_goes_on_after_the_newest_version_that_was_seen(follow: Follow) -> None:
    server = Server([_event("ADDED", 101), _event("BOOKMARK", 140)], [_event("DELETED", 141)])
    follow(server, 60.0)
    assert server.seen == [("ADDED", "t101"), ("DELETED", "t141")]
    assert server.since == ["100", "140", "141"] and server.lists == 1


def test_a_broken_connection_misses_nothing(follow: Follow) -> None:
    server = Server([_event("ADDED", 101), ApiError(0, "NoAnswer", "reset")], [_event("MODIFIED", 102)])
    follow(server, 60.0)
    assert server.since[:2] == ["100", "101"] and server.lists == 1


def test_what_no_watch_can_give_is_listed(follow: Follow) -> None:
    """An event that is too large, or that nobody can read, comes again with each watch from the same version."""
    server = Server(*([ApiError(0, "NoEvent", "unreadable")] for _ in range(4)), [_event("ADDED", 201)])
    follow(server, 120.0)
    assert server.lists == 2 and server.since[:5] == ["100", "100", "100", "100", "200"]


def test_a_server_that_has_forgotten_the_version_is_listed_again(follow: Follow) -> None:
    server = Server([ApiError(410, "Expired", "too old")], [_event("ADDED", 201)])
    follow(server, 60.0)
    assert server.lists == 2 and server.since == ["100", "200", "201"]


def test_a_refused_list_is_tried_again_after_growing_times(follow: Follow) -> None:
    """403 until the role is there, 404 until the CustomResourceDefinition is."""
    server = Server()
    server.list_errors = [ApiError(404, "NotFound", "no such kind"), ApiError(403, "Forbidden", "not yours")]
    follow(server, 2.5)
    assert server.lists == 0
    server.list_errors = [ApiError(404, "NotFound", "no such kind"), ApiError(403, "Forbidden", "not yours")]
    follow(server, 3.5)
    assert server.lists == 1


def test_a_refused_watch_begins_with_a_list(follow: Follow) -> None:
    server = Server([ApiError(403, "Forbidden", "not yours")], [_event("ADDED", 201)])
    follow(server, 60.0)
    assert server.lists == 2 and server.seen == [("ADDED", "t201")]


def test_everything_is_listed_again_every_ten_minutes(follow: Follow) -> None:
    server = Server()
    follow(server, 1900.0)
    assert server.lists == 4


def test_an_event_that_cannot_be_handled_stops_no_other(follow: Follow) -> None:
    server = Server([_event("ADDED", 13), _event("ADDED", 101)])
    follow(server, 60.0)
    assert server.seen == [("ADDED", "t101")] and server.lists == 1


def test_watches_that_end_at_once_are_not_begun_without_a_pause(follow: Follow) -> None:
    server = Server(*([] for _ in range(100)))
    follow(server, 10.0)
    assert len(server.since) <= 11
