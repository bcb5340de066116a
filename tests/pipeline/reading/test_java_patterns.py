"""Java's regular expressions on names of topics; tests/pipeline/test_spark.py has Java itself beside them."""

from __future__ import annotations

import pytest

from ottla_pipeline.reading.java_patterns import PatternError, compile_java

TOPICS = ("c_orders", "c_bdf", "C_BDF", "a.b", "axb", "Flights-2024", "_x", "9", "ab12ab12")


def matches(pattern: str) -> list[str]:
    expression = compile_java(pattern)
    return [topic for topic in TOPICS if expression.search(topic)]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("c_[a-z&&[^gsl]]+$", ["c_bdf"]),
        (r"^\p{Alpha}+$", ["axb"]),
        (r"\p{Upper}", ["C_BDF", "Flights-2024"]),
        (r"^\P{IsAlphabetic}", ["_x", "9"]),
        (r"^c(?i)_BDF\z", ["c_bdf"]),
        (r"(?i:C)_(?-i)bdf", ["c_bdf"]),
        (r"(?i)^[^c]", ["a.b", "axb", "Flights-2024", "_x", "9", "ab12ab12"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"^(?<part>\w+?\d+)\k<part>$", ["ab12ab12"]),
        (r"^[\w&&[^\d]]{2}\d++ab", ["ab12ab12"]),
        (r"\x2d|\u005f", ["c_orders", "c_bdf", "C_BDF", "Flights-2024", "_x"]),
        ("[a-z&&[A-Z]]", []),
    ],
)
def test_a_pattern_matches_as_in_java(pattern: str, found: list[str]) -> None:
    assert matches(pattern) == found


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "a ( is not closed"),
        ("[a", "a [ is not closed"),
        ("a)", "a ) has no ("),
        ("a{,3}", "illegal repetition"),
        (r"\G", r"the construct \G is not served"),
        (r"\p{IsGreek}", r"the class \p{IsGreek} is not served"),
        ("(?x)a", "the flag (?x) is not served"),
        ("(?<=a+)b", "is no regular expression that is served"),
        ("*", "is no regular expression that is served"),
        ("[b-a]", "goes backwards"),
        ("[a&&]", "nothing stands behind &&"),
    ],
)
def test_what_is_not_served_is_named(pattern: str, message: str) -> None:
    with pytest.raises(PatternError) as raised:
        compile_java(pattern)
    assert message in str(raised.value)
