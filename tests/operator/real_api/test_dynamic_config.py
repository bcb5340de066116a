"""Tests about dynamic configuration of tests/operator/concerns, on a real API server: ConfigMaps change in place."""

from __future__ import annotations

import pytest

from tests.operator.concerns import test_dynamic_config

pytestmark = [pytest.mark.kubernetes, pytest.mark.usefixtures("real_fleets"), pytest.mark.long]

test_a_changed_value_needs_no_restart = (
    test_dynamic_config.test_a_changed_value_is_in_effect_without_a_restart_and_in_the_file_of_the_next_start
)
test_a_value_that_somebody_sets_is_removed = (
    test_dynamic_config.test_a_value_that_somebody_sets_is_removed_and_reported_by_its_key
)
test_unmanaged_keys_are_left_alone = test_dynamic_config.test_unmanaged_keys_are_left_to_kafka_configs_and_shown
test_a_refused_value_is_reported = test_dynamic_config.test_a_refused_value_is_reported_with_the_error_and_is_in_no_file
