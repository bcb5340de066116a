"""Parses Kubernetes quantities, in every form that a person may write and an API server may return.

Not with the parser of the official client: `ottla local` reads the same documents without that client, and its parser
accepts "NaN", "1e3Ki", "10K" and "1_000", which an API server refuses (the tests compare the two).
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from ottla_documents.shown_values import shown

PATTERN = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?"
"""The grammar of k8s.io/apimachinery/pkg/api/resource: a signed number and a binary, decimal or exponent suffix."""
_QUANTITY = re.compile(PATTERN)
_FACTORS = {"": Decimal(1)} | {
    letter: Decimal(1000) ** power for power, letter in zip((-3, -2, -1, 1, 2, 3, 4, 5, 6), "numkMGTPE", strict=True)
}
_FACTORS |= {f"{letter}i": Decimal(1024) ** (power + 1) for power, letter in enumerate("KMGTPE")}

_MOST = Decimal(2**63 - 1)


def quantity(value: object) -> Decimal:
    """The exact value of a quantity.

    Args:
        value: text, or a number from YAML or JSON.

    Raises:
        ValueError: anything else.

    Source: Quantity of k8s.io/apimachinery/pkg/api/resource.

    >>> [str(quantity(text)) for text in ("1.5Ki", "200e9", "500m", 3)]
    ['1536.0', '2.00E+11', '0.500', '3']
    """
    text = "" if isinstance(value, bool) or not isinstance(value, str | int | float) else str(value)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{shown(value)} is not a quantity; write for example 100Gi")
    suffix = match[2] or ""
    number = text[: len(text) - len(suffix)]
    if suffix in _FACTORS:
        return Decimal(number) * _FACTORS[suffix]
    return Decimal(number).scaleb(int(suffix[1:]))


def quantity_bytes(value: object) -> int:
    """Bytes of a quantity, rounded up and at most what 64 bits hold, as Kubernetes does.

    >>> quantity_bytes("100Gi"), quantity_bytes("1.5k"), quantity_bytes("200e9"), quantity_bytes("1e999")
    (107374182400, 1500, 200000000000, 9223372036854775807)
    """
    return math.ceil(min(quantity(value), _MOST))
