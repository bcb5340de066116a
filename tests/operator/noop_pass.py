"""`python -m tests.operator.noop_pass`: how long a reconciliation takes that finds nothing to do, with twelve brokers.

Kubernetes and Kafka are the ones in memory, so this is the operator's own time: the snapshot, the decisions of all
concerns and the comparison of every object. Prints JSON, for `bench.operator_scale`.
"""

from __future__ import annotations

import asyncio
import copy
import json
import statistics
import sys
import time

from tests.operator.fleet import CLUSTER, Fleet

BROKERS = 12
PASSES = 30
TOPICS = 1000


async def measure(brokers: int = BROKERS, passes: int = PASSES) -> dict[str, float]:
    """Makes a cluster Ready and reconciles it again and again.

    Returns:
        Milliseconds of wall-clock time (median, worst) and of processor time (mean), and how often it wrote.
    """
    document = copy.deepcopy(CLUSTER)
    document["spec"]["brokers"]["replicas"] = brokers
    fleet = Fleet(document)
    fleet.kafka.partitions = [
        (f"t{number}", 0, tuple((number + step) % brokers for step in range(3))) for number in range(TOPICS)
    ]
    await fleet.converge(passes=200)
    before, cpu = len(fleet.kubernetes.writes), time.process_time()
    walls = []
    for _ in range(passes):
        began = time.perf_counter()
        await fleet.task.reconcile_once()
        walls.append((time.perf_counter() - began) * 1000)
    cpu_ms = (time.process_time() - cpu) * 1000 / passes
    writes = len(fleet.kubernetes.writes) - before
    return {
        "brokers": brokers, "passes": passes, "median_ms": statistics.median(walls), "worst_ms": max(walls),
        "cpu_ms": cpu_ms, "writes": writes,
    }  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(measure())) + "\n")
