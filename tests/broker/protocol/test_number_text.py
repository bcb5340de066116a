"""Which texts are numbers."""

from __future__ import annotations

import pytest

from ottla_broker.protocol.number_text import double_number, whole_number


@pytest.mark.parametrize(
    "text", ["", "+", "--1", "1.0", "0x10", "1\n", "\u00b2", "\u0661\u0662", "9" * 20, "-" + "9" * 20]
)
def test_what_is_no_whole_number_is_none(text: str) -> None:
    assert whole_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("9" * 19, 10**19 - 1), ("-" + "0" * 5000 + "9" * 19, 1 - 10**19), ("0" * 5000, 0), ("-0", 0)],
)
def test_a_whole_number_has_as_many_digits_as_a_long_behind_its_zeros(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize("text", ["", ".", "e5", "1e", "nan", "infinity", "1dd", "1 ", "0x1p3", "\u0661.5"])
def test_what_is_no_double_is_none(text: str) -> None:
    assert double_number(text) is None


@pytest.mark.parametrize(
    ("text", "number"), [("1" * 5000, float("inf")), ("-1E400f", float("-inf")), ("+1.", 1.0), ("1e-5000", 0.0)]
)
def test_a_double_beyond_the_largest_is_infinite(text: str, number: float) -> None:
    assert double_number(text) == number
