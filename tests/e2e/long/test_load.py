"""What the load in its pod tells of itself."""

from __future__ import annotations

from typing import Any, cast

import pytest

from e2e.long.load import FleetLoad, LoadEnded


class Logs:
    """A Kubernetes whose only pod has printed this."""

    def __init__(self, printed: str) -> None:
        self._printed = printed

    def kubectl(self, *arguments: str) -> str:
        return self._printed


def progress(printed: str) -> dict[str, Any]:
    return FleetLoad(cast("Any", Logs(printed)), "long-load").progress()


def test_the_last_line_is_the_progress() -> None:
    assert progress("") == {}
    assert progress('starting\n{"acknowledged": 1}\n{"acknowledged": 2}\n') == {"acknowledged": 2}


@pytest.mark.parametrize(
    "printed",
    [
        '{"acknowledged": 1}\n{"ended": "No module named x"}\n',
        "Traceback (most recent call last):\n  File ...\nModuleNotFoundError: No module named x\n",
    ],
)
def test_a_program_that_has_ended_is_told_with_its_reason_also_before_its_first_line(printed: str) -> None:
    with pytest.raises(LoadEnded, match="No module named x"):
        progress(printed)
