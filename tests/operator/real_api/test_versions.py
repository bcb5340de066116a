"""Tests about spec.version of tests/operator/concerns, on a real API server: status and templates between rolls."""

from __future__ import annotations

import pytest

from tests.operator.concerns import test_versions

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("real_fleets"), pytest.mark.long]

test_an_upgrade_is_two_rolls = test_versions.test_an_upgrade_rolls_the_image_first_and_the_protocol_when_all_are_in_sync
