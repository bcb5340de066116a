"""tests/operator/concerns/test_difference.py on a real API server, which knows who owns which field."""

from __future__ import annotations

import pytest

from tests.operator.concerns import test_difference as in_memory

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("real_fleets"), pytest.mark.long]

globals().update(
    {name: test for name, test in vars(in_memory).items() if name.startswith("test_") and "webhook" not in name}
)
