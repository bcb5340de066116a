"""What waits in the loop. A module of its own: mypyc, which may compile the loop, makes no subclass of a list."""

from __future__ import annotations

from typing import Any


class Handle(list[Any]):
    """A callback that waits for its turn or its time: [callback or None once cancelled, arguments, context].

    A list because a run makes some ten for every message, and asyncio's own handle costs four times as much to make.
    """

    __slots__ = ()

    def cancel(self) -> None:
        self[0] = None
        self[1] = ()

    def cancelled(self) -> bool:
        return self[0] is None
