"""What one test leaves behind is gone before the next one begins."""

from __future__ import annotations

import io
import logging

import pytest

from tests.conftest import pytest_runtest_setup


def test_a_test_that_silences_the_log_silences_no_other(request: pytest.FixtureRequest) -> None:
    logging.disable(logging.CRITICAL)
    assert not logging.getLogger("ottla").isEnabledFor(logging.ERROR)
    pytest_runtest_setup(request.node)  # what comes before the next one
    assert logging.getLogger("ottla").isEnabledFor(logging.ERROR)


def test_a_program_whose_standard_error_is_gone_leaves_no_handler(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = io.StringIO()
    logging.getLogger().addHandler(logging.StreamHandler(stream))
    stream.close()
    pytest_runtest_setup(request.node)
    logging.getLogger("ottla").error("one line")
    assert "Logging error" not in capsys.readouterr().err
