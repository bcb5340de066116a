"""Error messages that are too long for the wire. Pure.

An error message quotes what the request named, and a string of the wire protocol has at most 32 767 bytes: a name of
that length and the words around it do not fit. The client needs the error code in any case, so the message is cut.
"""

from __future__ import annotations

from typing import Any

MAX_MESSAGE_BYTES = 32_767
_CUT = "..."
_NAME_ENDING = "error_message"


def shorten_error_messages(response: Any) -> bool:
    """Cuts every error message of a response that is longer than a string may be.

    Args:
        response: a generated message or struct; its fields named `...error_message` are changed in place.

    Returns:
        Whether there was one.
    """
    has_changed = False
    for name in getattr(response, "__slots__", ()):
        value = getattr(response, name)
        if isinstance(value, list):
            for element in value:
                has_changed |= shorten_error_messages(element)
        elif isinstance(value, str):
            if name.endswith(_NAME_ENDING) and len(encoded := value.encode()) > MAX_MESSAGE_BYTES:
                kept = encoded[: MAX_MESSAGE_BYTES - len(_CUT)]
                setattr(response, name, kept.decode(errors="ignore") + _CUT)
                has_changed = True
        else:
            has_changed |= shorten_error_messages(value)
    return has_changed
