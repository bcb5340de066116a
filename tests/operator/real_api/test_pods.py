"""tests/operator/concerns/test_pods.py on a real API server, which writes quantities in its own form."""

from __future__ import annotations

import pytest

from tests.operator.concerns import test_pods as in_memory

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("real_fleets"), pytest.mark.long]

globals().update({name: test for name, test in vars(in_memory).items() if name.startswith("test_")})
