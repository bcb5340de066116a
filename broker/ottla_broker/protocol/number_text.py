"""Reads numbers that are written as text, in configurations, options and names, as Java does.

Python's int and float also take 1_000, blanks and inf, and int raises for more than 4300 digits. Digits are those of
ASCII, where Java takes those of every script. Not here: bounds, which each use has of its own. Pure.
"""

from __future__ import annotations

import re

_DIGITS_OF_A_LONG = 19
_DOUBLE = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?")


def whole_number(text: str) -> int | None:
    """The number in a text of an optional sign and decimal digits.

    Leading zeros are free. None for other text, and for a number of more digits than a long has.

    Source: java.lang.Long.parseLong.

    >>> [whole_number(text) for text in ("-7", "+007", "1" * 5000, "1_000", " 1", "")]
    [-7, 7, None, None, None, None]
    """
    digits = text[1:] if text.startswith(("+", "-")) else text
    if not (digits.isascii() and digits.isdecimal()):
        return None
    significant = digits.lstrip("0")
    if len(significant) > _DIGITS_OF_A_LONG:
        return None
    number = int(significant or "0")
    return -number if text.startswith("-") else number


def double_number(text: str) -> float | None:
    """The number in a text, which may have a fraction, an exponent and a type suffix. None for other text.

    Source: java.lang.Double.valueOf, without its hexadecimal numbers.

    >>> [double_number(text) for text in (".5", "1e3d", "-Infinity", "inf", "1_0.5")]
    [0.5, 1000.0, -inf, None, None]
    """
    found = _DOUBLE.fullmatch(text)
    return None if found is None else float(found[1])
