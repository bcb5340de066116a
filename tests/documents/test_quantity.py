"""Quantities, beside the official client's parser and in the schema that an API server checks."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from ottla_documents.quantity import quantity, quantity_bytes
from ottla_operator.api.objects import dig
from tests.operator.crds.schema import schema_of

NUMBERS = st.from_regex(r"[+-]?([0-9]{1,12}(\.[0-9]{0,4})?|\.[0-9]{1,4})", fullmatch=True)
SUFFIXES = st.sampled_from(["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
EXPONENTS = st.from_regex(r"[eE][+-]?[0-9]{1,2}", fullmatch=True)


@given(NUMBERS, st.one_of(SUFFIXES, EXPONENTS))
def test_a_quantity_has_the_value_that_the_official_client_reads(number: str, suffix: str) -> None:
    assert quantity(number + suffix) == parse_quantity(number + suffix)


@pytest.mark.parametrize(
    ("text", "number"),
    [("200e9", 200 * 10**9), ("2E11", 2 * 10**11), ("1E", 10**18), ("1Ei", 2**60), ("5.", 5), (".5Ki", 512), (7, 7)],
)
def test_a_quantity_keeps_its_value_when_an_api_server_rewrites_it(text: object, number: int) -> None:
    assert quantity(text) == Decimal(number) == quantity_bytes(text)


@pytest.mark.parametrize("text", ["1" * 5000, "1e999", "9Ei"])
def test_a_quantity_is_at_most_what_64_bits_hold(text: str) -> None:
    assert quantity_bytes(text) == 2**63 - 1


@pytest.mark.parametrize(
    "text", ["", "e9", "1e", "NaN", "Infinity", "1_000", "10K", "1e3Ki", "1 Gi", "1gi", "1Gi\n", "--1", True, None, []]
)
def test_a_quantity_is_refused_when_an_api_server_refuses_it(text: object) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity(text)


@cache
def pattern_of_sizes() -> str:
    size = dig(
        schema_of("kafkaclusters"), *["properties", "spec", "properties", "brokers", "properties", "disks", "items"]
    )
    pattern: str = size["properties"]["size"]["pattern"]
    return pattern


@given(NUMBERS, st.one_of(SUFFIXES, EXPONENTS))
def test_the_schema_accepts_the_sizes_that_the_model_accepts(number: str, suffix: str) -> None:
    text = number + suffix
    assert bool(re.search(pattern_of_sizes(), text)) == (not text.startswith("-"))
