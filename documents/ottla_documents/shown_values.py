"""How a message shows a value that somebody has written."""

from __future__ import annotations

_MOST_SHOWN = 200


def shown(value: object) -> str:
    """A value in a message: as Python writes it, and no longer than a line or two."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists in lists
        text = f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
