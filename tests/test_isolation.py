"""What one test leaves behind is gone before the next one begins."""

from __future__ import annotations

import logging


def test_a_test_that_silences_the_log() -> None:
    logging.disable(logging.CRITICAL)
    assert not logging.getLogger("ottla").isEnabledFor(logging.ERROR)


def test_and_the_one_after_it() -> None:
    assert logging.getLogger("ottla").isEnabledFor(logging.ERROR)
