"""Principals: who a client is, and how the name in a certificate becomes one (`ssl.principal.mapping.rules`). Pure.

    RULE:PATTERN/REPLACEMENT/     the whole name matches: each match of the pattern is replaced ($1 for a group)
    RULE:PATTERN/REPLACEMENT/L    and in lower case; U: upper case
    DEFAULT                       the name as it is

The first rule that matches wins. Patterns are Java's; one that means nothing, or something else, to Python is refused.

Source: org.apache.kafka.common.security.ssl.SslPrincipalMapper (KIP-371), KafkaPrincipal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla_broker.security.java_patterns import compile_java

_ONE = r"DEFAULT|RULE:(?:\\.|[^\\/])*/(?:\\.|[^\\/])*/[LU]?"
_RULES = re.compile(rf"\s*({_ONE}|.*?)\s*(?:[,\n]|$)")
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")


@dataclass(frozen=True, slots=True)
class Principal:
    """Such as User:alice.

    Args:
        by_token: it has authenticated by a delegation token, with which it gets no other (KIP-48). The principal is the
            same: it has the same rights.
    """

    type: str
    name: str
    by_token: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


USER = "User"
ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Of a connection without authentication. Source: KafkaPrincipal.ANONYMOUS."""


def parse_principal(text: str) -> Principal:
    """The principal of text such as User:alice; a name may have colons.

    Source: SecurityUtils.parseKafkaPrincipal.

    Raises:
        ValueError: it has no type.
    """
    principal_type, colon, name = text.partition(":")
    if not colon or not principal_type:
        raise ValueError(f"{text!r} has no type: write it before the name, such as {USER}:{text.lstrip(':')}")
    return Principal(principal_type, name)


class NoRuleMatches(ValueError):
    """No rule matches a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None: DEFAULT."""
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        result = self.pattern.sub(self._replace, name)
        if self.case == "L":
            return result.lower()
        return result.upper() if self.case == "U" else result

    def _replace(self, match: re.Match[str]) -> str:
        """$1 is a group, if there is one of that number; a backslash takes the next character as it is."""
        parts = re.split(r"(\\.|\$\d)", self.replacement)
        for index in range(1, len(parts), 2):
            part = parts[index]
            if part[0] == "\\":
                parts[index] = part[1]
            elif int(part[1]) <= match.re.groups:
                parts[index] = match[int(part[1])] or ""
        return "".join(parts)


class PrincipalMapping:
    """The rules of one broker.

    >>> mapping = PrincipalMapping("RULE:^CN=([^,]+),OU=Service.*$/$1/L, DEFAULT")
    >>> mapping.name("CN=Kafka,OU=ServiceUsers,O=Example"), mapping.name("CN=Alice,O=Example")
    ('kafka', 'CN=Alice,O=Example')

    Raises:
        ValueError: a rule cannot be read, or its pattern not be used; the message says which.
    """

    def __init__(self, rules: str) -> None:
        self._rules: Sequence[_Rule] = [_parse(match[1]) for match in _RULES.finditer(rules.strip()) if match[1]] or [
            _Rule(None, "", "")
        ]

    def name(self, distinguished_name: str) -> str:
        """Raises NoRuleMatches."""
        for rule in self._rules:
            found = rule.apply(distinguished_name)
            if found is not None:
                return found
        raise NoRuleMatches(f"no rule of ssl.principal.mapping.rules matches {distinguished_name!r}")


def _parse(text: str) -> _Rule:
    if text == "DEFAULT":
        return _Rule(None, "", "")
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is neither DEFAULT nor RULE:PATTERN/REPLACEMENT/[LU]")
    return _Rule(compile_java(match[1]), match[2], match[3])
