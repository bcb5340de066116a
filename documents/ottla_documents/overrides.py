"""spec.brokers.overrides: what holds for single brokers, by id."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from ottla_documents.disk_spec import DiskOverride
from ottla_documents.schema.marks import Items, OnlyRight, WholeNumber

BrokerState = Literal["Active", "Hold"]
HIGHEST_BROKER_ID = 2**31 - 1
BrokerId: TypeAlias = Annotated[int, WholeNumber(0)]


@dataclass(frozen=True, slots=True)
class BrokerOverride:
    """What holds for one broker."""

    id: BrokerId
    """The broker id. An id that no broker has does nothing."""
    state: BrokerState = "Active"
    """Active: the broker is treated as all others. Hold: rolls leave the broker out, so it keeps its pod and its
    template. A held broker with a pending change makes Rolled False with the reason Held."""
    disks: Annotated[tuple[DiskOverride, ...], Items(most=32, key="name")] = ()
    """What holds for single disks of this broker. Default: nothing."""


Overrides: TypeAlias = Annotated[tuple[BrokerOverride, ...], Items(most=1000, key="id"), OnlyRight()]
"""An entry with a problem does not count."""


def with_state(overrides: Iterable[BrokerOverride], state: BrokerState) -> frozenset[int]:
    """The ids of the brokers that are declared to be in this state."""
    return frozenset(one.id for one in overrides if one.state == state)
