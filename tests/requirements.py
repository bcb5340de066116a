"""What a test does without something that it needs and that no marker of `tests.conftest` names."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skips the test; with OTTLA_TEST_ALL=1 it fails.

    Args:
        reason: what is missing, and the script that brings it.
    """
    if os.environ.get("OTTLA_TEST_ALL") == "1":
        pytest.fail(f"OTTLA_TEST_ALL=1 and {reason}", pytrace=False)
    pytest.skip(reason)
