"""Turns: long work of requests in slices, one slice of all of them in an iteration of the loop.

A request of many elements is read, handled and answered in slices. After each it waits for its next turn, behind the
other long ones: however many of them there are, the loop does one slice, polls its sockets, and answers the short
requests in between. Slices are counted in elements and not in time, so that the same requests have the same slices in
the simulator. Not here: where a reader or writer may pause (`protocol.generator`).

A handler that loops over what a request names, or over what the broker stores, writes

    async for group_id in context.each(request.groups):
        results.append(...)

It may be interrupted before each element. So whatever has to be seen as one change is made behind such a loop, or in
one step of it. The next request of the connection waits for the answer of this one (`edge.connection`).

What others may rely on:

- A handler loops over what a request names, or over what the broker stores, with `async for ... in
  context.each(...)`: between two elements other requests are handled. What has to be seen as one change is made in
  one step. A loop over a table that others change takes a copy first.
- A handler that ends with ClientIsGone has no client to answer; what it has begun in other parts goes on.
- An API whose loops are not of this kind has a limit in `server.edge.element_limits`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Coroutine, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from ottla_broker.ports.clock import Clock

ELEMENTS_PER_TURN: Final = 100
"""At 5 µs each, which is what most handlers need, half a millisecond."""

NAMES_PER_RUN: Final = 1000
"""So many names are sorted in less than half a millisecond."""

RELEASED_PER_ELEMENT: Final = 4
"""To release an element takes a quarter of the time that handling one does."""

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Asker(Protocol):
    """The connection that a request came by."""

    @property
    def is_closed(self) -> bool: ...


class ClientIsGone(Exception):
    """The rest of the work for a request is for nobody."""


class Turns:
    """The turns of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def next(self, *, is_urgent: bool) -> None:
        """Returns in a later iteration of the loop, when it is the caller's turn.

        Args:
            is_urgent: before all that is not: a request of the controller.
        """
        future: asyncio.Future[None] = self._clock.create_future()
        (self._urgent if is_urgent else self._waiting).append(future)
        self._schedule()
        await future

    def spawn(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        """Starts work that takes turns."""
        self._clock.spawn(coroutine, name=name)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._clock.call_soon(self._give)

    def _give(self) -> None:
        self._is_scheduled = False
        for queue in (self._urgent, self._waiting):
            while queue:
                future = queue.popleft()
                if not future.done():  # its task may have been cancelled
                    future.set_result(None)
                    if self._urgent or self._waiting:
                        self._schedule()
                    return


class LongWork:
    """The work for one request, which takes a turn when enough was done.

    Args:
        client: where the request came from.
        is_urgent: see `Turns.next`.
    """

    __slots__ = ("_client", "_left", "is_long", "is_urgent", "turns")

    def __init__(self, turns: Turns, client: Asker, *, is_urgent: bool) -> None:
        self.turns = turns
        self._client = client
        self.is_urgent = is_urgent
        self.is_long = False
        """It has taken a turn: its response may be long as well."""
        self._left = ELEMENTS_PER_TURN

    async def turn(self) -> None:
        """Lets others go first. Raises ClientIsGone: nobody could read the answer of a request that is not the
        controller's."""
        self.is_long = True
        self._left = ELEMENTS_PER_TURN
        await self.turns.next(is_urgent=self.is_urgent)
        if self._client.is_closed and not self.is_urgent:
            raise ClientIsGone

    def each(self, elements: Iterable[T], cost: int = 1) -> Each[T]:
        """The elements one by one, with turns in between.

        Args:
            cost: of one element, in ordinary ones.
        """
        return Each(self, iter(elements), cost)

    async def distinct(self, names: Iterable[K]) -> list[K]:
        """The names as they come, but from the hundredth on none that came before.

        Apache Kafka answers a name as often as it comes. A request that names one large group a hundred thousand times
        would have an answer of gigabytes.
        """
        found: list[K] = []
        known: set[K] = set()
        async for name in self.each(names):
            if len(found) < ELEMENTS_PER_TURN or name not in known:
                found.append(name)
                known.add(name)
        return found

    async def sorted(self, names: Sequence[str]) -> list[str]:
        """The names in order: runs of them are sorted at once, and merged in turns."""
        starts = self.each(range(0, len(names), NAMES_PER_RUN), ELEMENTS_PER_TURN)
        runs = [sorted(names[start : start + NAMES_PER_RUN]) async for start in starts]
        if len(runs) <= 1:
            return runs[0] if runs else []
        return [name async for name in self.each(heapq.merge(*runs))]

    async def release(self, message: Any) -> None:
        """Gives up the elements of a message that nobody needs any more, whether the client is gone or not: to free a
        million objects at once takes a tenth of a second."""
        for name in getattr(message, "__slots__", ()):
            elements = getattr(message, name)
            if elements.__class__ is not list or not elements:
                continue
            members = getattr(elements[0], "__slots__", ())
            lists = [member for member in members if getattr(elements[0], member).__class__ is list]
            while elements:
                for element in elements[-ELEMENTS_PER_TURN:] if lists else ():
                    if any(len(getattr(element, member) or ()) > ELEMENTS_PER_TURN for member in lists):
                        await self.release(element)
                del elements[-ELEMENTS_PER_TURN:]
                self._left -= ELEMENTS_PER_TURN // RELEASED_PER_ELEMENT
                if self._left < 0:
                    self._left = ELEMENTS_PER_TURN
                    await self.turns.next(is_urgent=self.is_urgent)

    async def count(self, cost: int) -> None:
        """Work of this cost was done."""
        self._left -= cost
        if self._left < 0:
            await self.turn()


class Each(Generic[T]):
    """An asynchronous iterator, see `LongWork.each`."""

    __slots__ = ("_cost", "_elements", "_work")

    def __init__(self, work: LongWork, elements: Iterator[T], cost: int) -> None:
        self._work = work
        self._elements = elements
        self._cost = cost

    def __aiter__(self) -> Each[T]:
        return self

    async def __anext__(self) -> T:
        for element in self._elements:
            await self._work.count(self._cost)
            return element
        raise StopAsyncIteration
