"""`python -m tests.pipeline.exactly_once --runs 50`: exactly-once under kill -9, with real Spark and real brokers.

A run writes three batches. In one of them, at one step, the JVM, a Python process of Spark, the leader of a partition
or a coordinator is killed; in some runs the JVM is killed at a random moment instead. The program is started again,
with another number of tasks, until it ends well. Then a reader of committed records must see each row once, and the
files that tasks have left for the driver must be gone.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ottla.testing import RunningCluster, cluster
from ottla_pipeline.sink import marker
from ottla_pipeline.sink.write_options import parse_write_options
from tests.pipeline.exactly_once.killing import DONE, JVM, PLAN, SPOOL, WANTED
from tests.pipeline.sink.test_delivery import read_all, topic
from tests.pipeline.sink.test_exactly_once import coordinator, leader

ROWS, BATCHES, STARTS = 1200, 3, 6
STEPS = ("begin", "look", "enlist", "send", "mark", "end")
PLANS = [
    *itertools.product(("task", "file", *STEPS), ("jvm", "worker")),
    *itertools.product(STEPS, ("leader", "transaction coordinator", "group coordinator")),
]


@dataclass(frozen=True)
class Run:
    """What is killed where; step "random" is any moment of the first seconds."""

    number: int
    step: str
    victim: str
    batch: int
    after_s: float


def planned(runs: int, seed: int) -> list[Run]:
    """Every plan once, in random order, and between them as many random moments as there is room for."""
    chance = random.Random(seed)
    plans = chance.sample(PLANS, len(PLANS))
    plans += [("random", "jvm")] * max(runs - len(plans), 0)
    chance.shuffle(plans)
    return [
        Run(number, step, victim, chance.randrange(1, BATCHES), chance.uniform(0, 8))
        for number, (step, victim) in enumerate(plans[:runs])
    ]


class SparkProgram:
    """The process of `job`, started when there is none. Its JVM may be killed at any time."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def write(self, folder: Path, bootstrap: str, name: str, split: int) -> str:
        """ "ended", "failed" (the query), or "killed" (the whole program)."""
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.pipeline.exactly_once.job"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"folder": str(folder), "bootstrap": bootstrap, "topic": name, "split": split}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        if not answer:
            self.close()
        return answer or "killed"

    def close(self) -> None:
        """Ends it."""
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None


def carry_out(run: Run, fleet: RunningCluster, program: SparkProgram, folder: Path) -> tuple[bool, str]:
    """Whether each row is there once, and what there was instead."""
    name = topic(fleet, f"run-{run.number}")
    (folder / "source").mkdir()
    (folder / SPOOL).mkdir()
    for number in range(BATCHES):
        file = folder / "source" / f"{number}.txt"
        file.write_text("\n".join(str(row) for row in range(ROWS * number, ROWS * (number + 1))))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    (folder / PLAN).write_text(json.dumps({"step": run.step, "victim": run.victim, "batch": run.batch}))
    ends: list[str] = []
    while not ends or ends[-1] != "ended":
        if len(ends) == STARTS:
            return False, f"the query did not end well in {STARTS} starts"
        over = threading.Event()
        killer = threading.Thread(target=_kill_when_asked, args=(run, fleet, folder, name, over))
        killer.start()
        ends.append(program.write(folder, fleet.bootstrap, name, 1 + (run.number + len(ends)) % 4))
        over.set()
        killer.join()
    found = Counter(int(value.rstrip(b".")) for _, _, value in read_all(fleet, name))
    wanted = Counter(range(ROWS * BATCHES))
    what = ", ".join(["killed" if (folder / DONE).exists() else "not reached", *ends])
    missing, more = (wanted - found).total(), (found - wanted).total()
    if left := len(list((folder / SPOOL).iterdir())):
        return False, f"{left} files of tasks are left ({what})"
    return (True, what) if found == wanted else (False, f"{missing} rows missing, {more} too many ({what})")


def _kill_when_asked(run: Run, fleet: RunningCluster, folder: Path, name: str, over: threading.Event) -> None:
    """Kills the broker that a process of Spark asks for, and starts it again after two seconds; or the JVM by time."""
    began: float | None = None
    restart: tuple[float, int] | None = None
    while not over.wait(0.02) or restart is not None:
        now = time.monotonic()
        if began is None and (folder / JVM).exists():
            began = now
        if run.step == "random" and began is not None and now > began + run.after_s and not (folder / DONE).exists():
            (folder / DONE).touch()
            os.kill(int((folder / JVM).read_text()), 9)
        if (folder / WANTED).exists():
            checked = parse_write_options({"kafka.bootstrap.servers": fleet.bootstrap, "topic": name})
            group = marker.group_of(json.loads((folder / "checkpoint" / "metadata").read_text())["id"])
            if run.victim == "leader":
                broker = leader(fleet, checked, name)
            else:
                broker = coordinator(fleet, checked, group, int(run.victim.startswith("transaction")))
            fleet.kill(broker)
            restart = (now + 2, broker)
            (folder / WANTED).unlink()
        if restart is not None and now > restart[0]:
            fleet.start(restart[1])
            restart = None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.exactly_once", description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--first", type=int, default=1, help="begin with this one of the runs")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = 0
    # No automatic creation: a topic is there before it is written to.
    with (
        cluster(brokers=3, racks=3, config={"auto.create.topics.enable": "false"}) as fleet,
        tempfile.TemporaryDirectory(prefix="ottla-exactly-once-") as work,
    ):
        program = SparkProgram(Path(work) / "log")
        for run in planned(arguments.runs, arguments.seed)[arguments.first - 1 :]:
            folder = Path(work) / str(run.number)
            folder.mkdir()
            began = time.monotonic()
            is_right, what = carry_out(run, fleet, program, folder)
            wrong += not is_right
            print(
                f"{run.number + 1:3} {'ok   ' if is_right else 'WRONG'} {run.victim} killed at {run.step}"
                f" of batch {run.batch}: {what}, {time.monotonic() - began:.0f} s",
                flush=True,
            )
            if not is_right:
                print((Path(work) / "log").read_text(errors="replace")[-3000:], flush=True)
        program.close()
    print(f"{arguments.runs - arguments.first + 1} runs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
