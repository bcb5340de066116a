"""What a person does with Ottla on Kubernetes, from installation to deletion. `make e2e` runs it."""

import pytest

pytest.register_assert_rewrite("e2e.tests.record_traffic")  # so that a failed assertion there shows its values
