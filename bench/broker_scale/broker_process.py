"""`python -m bench.broker_scale.broker_process LONG_TURNS SERVER.PROPERTIES`: `ottla broker run`, with the long turns
of its loop written into a file."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from bench.broker_scale.long_turns import LongTurns, WatchedPoll
from ottla.cli.broker import run
from ottla_broker.adapters import process
from ottla_broker.adapters.event_loop import TakeoverLoop


def main() -> None:
    turns = LongTurns(Path(sys.argv[1]))

    class WatchedLoop(TakeoverLoop):
        def __init__(self) -> None:
            super().__init__()
            self._epoll = WatchedPoll(self._epoll, turns)  # type: ignore[assignment]

    process.__dict__["TakeoverLoop"] = WatchedLoop
    try:
        run(Path(sys.argv[2]), None, "INFO")
    except typer.Exit as end:
        sys.exit(end.exit_code)


if __name__ == "__main__":
    main()
