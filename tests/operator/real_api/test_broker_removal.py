"""The tests of tests/operator/concerns/test_broker_removal.py, on a real API server."""

from __future__ import annotations

import pytest

from tests.operator.concerns import test_broker_removal as in_memory

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("real_fleets"), pytest.mark.long]

SLOW = ("test_a_declaration_that_is_taken_back", "test_an_operator_killed")
globals().update(
    {name: test for name, test in vars(in_memory).items() if name.startswith("test_") and not name.startswith(SLOW)}
)
