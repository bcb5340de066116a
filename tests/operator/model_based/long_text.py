"""Texts that are too long for where they must go; hypothesis prints their length instead of them."""

from __future__ import annotations


class LongText(str):
    """
    >>> LongText("ab" * 20_000)
    LongText of 40000 characters
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"LongText of {len(self)} characters"
