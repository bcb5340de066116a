"""spec.brokers.overrides: what holds for single brokers, by id.

Active  the broker is treated as all others; the same as no entry
Hold    rolls leave the broker out: it keeps its pod and its template until the state is Active again
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from ottla_documents.disk_spec import DiskOverride, parse_disk_overrides
from ottla_documents.fields import Fields

BrokerState = Literal["Active", "Hold"]
BROKER_STATES: tuple[str, ...] = get_args(BrokerState)
HIGHEST_BROKER_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BrokerOverride:
    """What is declared of one broker."""

    id: int
    state: BrokerState = "Active"
    disks: tuple[DiskOverride, ...] = ()


def parse_overrides(brokers: Fields) -> tuple[BrokerOverride, ...]:
    """Reads `overrides` below spec.brokers. An entry with a problem does not count.

    >>> problems = []
    >>> parse_overrides(Fields({"overrides": [{"id": 3, "state": "Hold"}]}, "spec.brokers", problems)), problems
    ((BrokerOverride(id=3, state='Hold', disks=()),), [])
    """
    found: dict[int, BrokerOverride] = {}
    for item in brokers.items("overrides"):
        known = len(brokers.problems)
        broker_id = item.whole("id", lowest=0, highest=HIGHEST_BROKER_ID)
        state = item.choice("state", BROKER_STATES, "Active")
        disks = parse_disk_overrides(item)
        item.finish()
        if broker_id in found:
            item.problem("id", f"{broker_id} has two entries")
        if len(brokers.problems) == known:
            found[broker_id] = BrokerOverride(broker_id, cast(BrokerState, state), disks)
    return tuple(found.values())


def with_state(overrides: Iterable[BrokerOverride], state: BrokerState) -> frozenset[int]:
    """The ids of the brokers that are declared to be in this state."""
    return frozenset(one.id for one in overrides if one.state == state)
