"""Tests about disks of tests/operator/concerns, on a real API server: what is written to claims, and their deletion."""

from __future__ import annotations

import pytest

from tests.operator.concerns import test_disk_drains, test_disk_replacement

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("real_fleets"), pytest.mark.long]

test_a_failed_disk_is_replaced = (
    test_disk_replacement.test_a_failed_disk_is_replaced_and_the_broker_gets_the_permission_to_format_it
)
test_the_replaced_claim_is_deleted = (
    test_disk_replacement.test_the_replaced_claim_is_deleted_when_the_policy_says_so_after_the_broker_has_the_new_one
)
test_a_drained_disk_is_removed = test_disk_drains.test_a_drained_disk_is_removed_from_every_broker_in_a_roll
