"""The metrics of a driver, from the status that `run_folder` keeps: /metrics has no state of its own. Pure.

A counter begins at 0 with each process, as Prometheus expects it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla_broker.metrics import SourceFamily

PHASES = ("Starting", "Running", "Waiting", "Restarting", "Completed", "Stopped", "Failed")
_OF_QUERIES = (
    ("ottla_pipeline_batch_input_rows", "Rows that the last batch of a query has read.", "numInputRows", 1.0),
    ("ottla_pipeline_processed_rows_per_second", "Rate of the last batch of a query.", "processedRowsPerSecond", 1.0),
    ("ottla_pipeline_batch_duration_seconds", "How long the last batch of a query took.", "lastBatchDurationMs", 0.001),
    ("ottla_pipeline_last_batch_id", "Number of the last batch of a query.", "lastBatchId", 1.0),
    ("ottla_pipeline_state_rows", "Rows in the state stores of a query.", "stateRows", 1.0),
)


def metric_families(status: Mapping[str, Any]) -> Iterator[SourceFamily]:
    """The samples for a status.

    >>> status = {"pipeline": "p", "phase": "Running", "restarts": 2, "queries": {"p": {"lag": {"t": {"0": 5}}}}}
    >>> {family.name: family.samples[-1][1] for family in metric_families(status)}["ottla_pipeline_lag"]
    5.0
    >>> [dict(labels)["phase"] for labels, value in next(metric_families(status)).samples if value]
    ['Running']
    """
    phase, queries = status.get("phase"), _queries(status)
    yield SourceFamily(
        "ottla_pipeline_phase",
        "1 for the phase in which the pipeline is.",
        False,
        [({"phase": one}, float(one == phase)) for one in PHASES],
    )
    yield SourceFamily(
        "ottla_pipeline_restarts",
        "Attempts after a failure, within this process.",
        True,
        [({}, float(status.get("restarts") or 0))],
    )
    yield SourceFamily(
        "ottla_pipeline_input_rows",
        "Rows that a query has read, within this process.",
        True,
        [({"query": name}, float(one.get("totalInputRows") or 0)) for name, one in queries.items()],
    )
    for metric, meaning, field, factor in _OF_QUERIES:
        samples = [({"query": name}, factor * float(one.get(field) or 0)) for name, one in queries.items()]
        yield SourceFamily(metric, meaning, False, samples)
    yield SourceFamily(
        "ottla_pipeline_lag",
        "Records of a partition that a query has not read yet, as of its last batch.",
        False,
        [
            ({"query": name, "topic": topic, "partition": number}, float(lag))
            for name, one in queries.items()
            for topic, partitions in (one.get("lag") or {}).items()
            for number, lag in partitions.items()
        ],
    )


def _queries(status: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    found = status.get("queries")
    return found if isinstance(found, Mapping) else {}
