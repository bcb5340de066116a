"""Every machine by its name, and how a run of one is set."""

from __future__ import annotations

import logging
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.operator.model_based.changes import ChangeMachine
from tests.operator.model_based.clusters import ClusterMachine
from tests.operator.model_based.fleets import FleetMachine
from tests.operator.model_based.ground import GroundMachine
from tests.operator.model_based.machine import Machine
from tests.operator.model_based.moves import MoveMachine
from tests.operator.model_based.racks import RackMachine
from tests.operator.model_based.topics import TopicMachine

MACHINES: dict[str, type[Machine]] = {
    "topics": TopicMachine, "clusters": ClusterMachine, "racks": RackMachine, "fleets": FleetMachine,
    "moves": MoveMachine, "changes": ChangeMachine, "ground": GroundMachine,
}  # fmt: skip


def settings_of(examples: int, steps: int, **more: Any) -> settings:
    """However long an example takes; nothing is kept between runs."""
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, database=None, print_blob=False,
        report_multiple_bugs=False, suppress_health_check=list(HealthCheck), **more,
    )  # fmt: skip


def run_fixed(name: str, examples: int, steps: int) -> None:
    """The same examples every time: a red run is the change's doing. Campaigns take others (`__main__`)."""
    logging.disable(logging.CRITICAL)  # every refused call is a line
    try:
        run_state_machine_as_test(MACHINES[name], settings=settings_of(examples, steps, derandomize=True))
    finally:
        logging.disable(logging.NOTSET)
