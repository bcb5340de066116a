"""A running fleet with the task of its topics. A condition that the table of conditions lacks fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla_operator.api.conditions import Condition
from ottla_operator.condition_table import is_listed
from tests.operator.fleet import Fleet
from tests.operator.topic_fleet import Topics


class UnlistedReason(Exception):
    """A user would see a reason that the manual does not explain."""


@pytest.fixture(autouse=True, scope="session")
def only_listed_conditions() -> Iterator[None]:
    construct: Any = Condition.__init__

    def checked(self: Condition, *values: Any, **named: Any) -> None:
        construct(self, *values, **named)
        if not is_listed(self.type, self.status, self.reason):
            raise UnlistedReason(f"{self.type}={self.status} {self.reason}")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Condition, "__init__", checked)
        yield


@pytest.fixture
async def topics() -> Topics:
    fleet = Fleet()
    await fleet.converge()
    fleet.kubernetes.writes.clear()
    return Topics(fleet)
