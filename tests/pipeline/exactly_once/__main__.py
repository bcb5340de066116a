"""`python -m tests.pipeline.exactly_once --runs 50`: exactly-once under kill -9, with real Spark and real brokers.

A run writes three batches. In one of them, at one step, the JVM, a Python process of Spark, the leader of a partition
or a coordinator is killed; in some runs the JVM is killed at a random moment instead. The program is started again,
with another number of tasks, until it ends well. Then a reader of committed records must see each row once.
"""

from __future__ import annotations

import argparse
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

from ottla_broker.testing import RunningCluster, cluster
from ottla_pipeline.sink import marker
from ottla_pipeline.sink.write_options import parse_write_options
from tests.pipeline.exactly_once.killing import DONE, JVM, PLAN, WANTED
from tests.pipeline.sink.test_delivery import read_all, topic
from tests.pipeline.sink.test_exactly_once import coordinator, leader

ROWS, BATCHES, STARTS = 1200, 3, 6
STEPS = ("begin", "look", "enlist", "send", "mark", "end")
PLANS = [
    *itertools.product(("task", *STEPS), ("jvm", "worker")),
    *itertools.product(STEPS, ("leader", "transaction coordinator", "group coordinator")),
]


@dataclass(frozen=True)
class Run:
    """What is killed where; step "random" is any moment of the second to twentieth second."""

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
        Run(number, step, victim, chance.randrange(1, BATCHES), chance.uniform(2, 20))
        for number, (step, victim) in enumerate(plans[:runs])
    ]


def carry_out(run: Run, fleet: RunningCluster, folder: Path) -> tuple[bool, str]:
    """Whether each row is there once, and what there was instead."""
    name = topic(fleet, f"run-{run.number}")
    (folder / "source").mkdir()
    for number in range(BATCHES):
        lines = "\n".join(str(row) for row in range(ROWS * number, ROWS * (number + 1)))
        (folder / "source" / f"{number}.txt").write_text(lines)
        os.utime(folder / "source" / f"{number}.txt", (1_700_000_000 + number, 1_700_000_000 + number))
    (folder / PLAN).write_text(json.dumps({"step": run.step, "victim": run.victim, "batch": run.batch}))
    starts = 0
    while True:
        starts += 1
        split = 1 + (run.number + starts) % 4
        program = [sys.executable, "-m", "tests.pipeline.exactly_once.job"]
        with (folder / "log").open("ab") as log:
            job = subprocess.Popen([*program, str(folder), fleet.bootstrap, name, str(split)], stdout=log, stderr=log)
            killer = threading.Thread(target=_kill_when_asked, args=(run, fleet, folder, name, job, starts))
            killer.start()
            code = job.wait()
            killer.join()
        if code == 0:
            break
        if starts == STARTS:
            return False, f"the program did not end well in {STARTS} starts, see {folder / 'log'}"
    found = Counter(int(value.rstrip(b".")) for _, _, value in read_all(fleet, name))
    wanted = Counter(range(ROWS * BATCHES))
    killed = "killed" if (folder / DONE).exists() else "not reached"
    if found == wanted:
        return True, f"{killed}, {starts} starts"
    missing, more = (wanted - found).total(), (found - wanted).total()
    return False, f"{missing} rows missing, {more} too many ({killed}, {starts} starts)"


def _kill_when_asked(
    run: Run, fleet: RunningCluster, folder: Path, name: str, job: subprocess.Popen[bytes], starts: int
) -> None:
    """Kills the broker that a process of Spark asks for, and starts it again after two seconds; or the JVM by time."""
    began = time.monotonic()
    restart: tuple[float, int] | None = None
    while job.poll() is None or restart is not None:
        now = time.monotonic()
        if run.step == "random" and starts == 1 and now - began > run.after_s and not (folder / DONE).exists():
            (folder / DONE).touch()
            if (folder / JVM).exists():
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
        time.sleep(0.05)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.exactly_once", description=__doc__)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = 0
    # No automatic creation: a topic is there before it is written to.
    with (
        cluster(brokers=3, racks=3, config={"auto.create.topics.enable": "false"}) as fleet,
        tempfile.TemporaryDirectory(prefix="ottla-exactly-once-") as work,
    ):
        for run in planned(arguments.runs, arguments.seed):
            folder = Path(work) / str(run.number)
            folder.mkdir()
            began = time.monotonic()
            is_right, what = carry_out(run, fleet, folder)
            wrong += not is_right
            print(
                f"{run.number + 1:3} {'ok   ' if is_right else 'WRONG'} {run.victim} killed at {run.step}"
                f" of batch {run.batch}: {what}, {time.monotonic() - began:.0f} s",
                flush=True,
            )
            if not is_right:
                print((folder / "log").read_text(errors="replace")[-3000:], flush=True)
    print(f"{arguments.runs} runs, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
