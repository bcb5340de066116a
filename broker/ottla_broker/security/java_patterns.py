"""Java's regular expressions in rules about names, as Python runs them. Pure.

A pattern or replacement that means nothing, or something else, to Python is refused. Classes such as \\w are those of
ASCII, as Java's are.

Source: java.util.regex.Pattern, Matcher.appendReplacement.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

_JAVA_ALONE = re.compile(r"\\[pPQEhHRXGzZ]|&&|\(\?<[A-Za-z]")
"""Classes of Unicode, quotations, intersections, named groups, and anchors: other or none in Python."""
_DIGITS = "0123456789"


def compile_java(pattern: str) -> re.Pattern[str]:
    """Raises ValueError for a pattern that is not served; the message has it."""
    alone = _JAVA_ALONE.search(pattern)
    if alone is not None:
        raise ValueError(f"{alone[0]!r} of the pattern {pattern!r} is not served: write it without")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(pattern, re.ASCII)
    except (re.error, FutureWarning, DeprecationWarning) as error:
        raise ValueError(f"the pattern {pattern!r} cannot be used: {error}") from None


@dataclass(frozen=True, slots=True)
class JavaReplacement:
    """What stands in place of a match: text, and groups by number.

    >>> pattern = compile_java("(a)(b)?")
    >>> pattern.sub(JavaReplacement.of(r"\\$$1$2$12", pattern).replace, "ab-a")
    '$aba2-$aa2'
    """

    parts: tuple[str | int, ...]

    @classmethod
    def of(cls, text: str, pattern: re.Pattern[str]) -> JavaReplacement:
        """A replacement for the matches of a pattern, by a text in which $1 is a group and a backslash takes the next
        character as it is. A number has as many digits as make a group that the pattern has.

        Raises:
            ValueError: it names a group that the pattern does not have, or ends in the midst of something.
        """
        parts: list[str | int] = []
        at = 0
        while at < len(text):
            char, at = text[at], at + 1
            if char == "\\" or char == "$":
                following = text[at : at + 1]
                if not following or (char == "$" and following not in _DIGITS):
                    raise ValueError(f"the replacement {text!r} has {char!r} without what belongs behind it")
                at += 1
                if char == "\\":
                    parts.append(following)
                    continue
                group = int(following)
                if group > pattern.groups:
                    raise ValueError(f"the replacement {text!r} names group {group} of {pattern.groups}")
                while at < len(text) and text[at] in _DIGITS and group * 10 + int(text[at]) <= pattern.groups:
                    group, at = group * 10 + int(text[at]), at + 1
                parts.append(group)
            else:
                parts.append(char)
        return cls(tuple(parts))

    def replace(self, match: re.Match[str]) -> str:
        """For `re.sub`. A group without a match is empty."""
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.parts)
