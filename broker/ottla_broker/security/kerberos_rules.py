"""Short names of Kerberos principals: `sasl.kerberos.principal.to.local.rules`. Pure.

    DEFAULT                          alice@REALM and kafka/host@REALM of the default realm: alice, kafka
    RULE:[N:FORMAT](MATCH)s/FROM/TO/g/L
      N        how many components the name has before its realm
      FORMAT   what the rule works on: $0 is the realm, $1 and $2 are the components
      MATCH    a pattern of the whole of it; without one every name of N components
      FROM, TO what is replaced in it, once or with g each time
      L, U     in lower or upper case at the end

The first rule that matches gives the name. Rules are separated by commas, so none has a comma in it. Patterns are
Java's (`java_patterns`).

Source: org.apache.kafka.common.security.kerberos: KerberosName, KerberosShortNamer, KerberosRule. Beside them rules
that would fail whenever they match are refused, and so are principals in whose names Kerberos escapes a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla_broker.security.java_patterns import JavaReplacement, compile_java

_NAME: Final = re.compile(r"(?P<first>[^/@]*)(?:/(?P<second>[^/@]*))?@(?P<realm>[^/@]*)")
_RULE: Final = re.compile(
    r"RULE:\[(?P<count>[0-9]*):(?P<format>[^\]]*)\]"
    r"(?P<matching>\((?P<match>[^)]*)\))?"
    r"(?P<replacing>s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$([0-9]*)")
_NOT_SIMPLE: Final = re.compile("[/@]")


class NoShortName(ValueError):
    """A principal has no short name by the rules; the message says why."""


@dataclass(frozen=True, slots=True)
class KerberosName:
    """A principal: its components and its realm.

    Args:
        components: one or two.
        realm: None for a name without one, which is short already.
    """

    components: tuple[str, ...]
    realm: str | None

    @classmethod
    def parse(cls, text: str) -> KerberosName:
        """
        >>> KerberosName.parse("kafka/b.example@EXAMPLE")
        KerberosName(components=('kafka', 'b.example'), realm='EXAMPLE')

        Raises:
            NoShortName: it has another form.
        """
        if "\\" in text or not text.isprintable():
            raise NoShortName(f"the Kerberos name {text!r} has a character that has to be escaped")
        match = _NAME.fullmatch(text)
        if match is None:
            if "@" in text:
                raise NoShortName(f"the Kerberos name {text!r} is malformed")
            return cls((text,), None)
        first, second, realm = match.groups()
        return cls((first,) if second is None else (first, second), realm)


@dataclass(frozen=True, slots=True)
class _ShortNameRule:
    """
    Args:
        parts: of the format; a number is a component, 0 the realm.
        match: of the whole; None for everything.
        found: what is replaced; None for nothing.
    """

    count: int
    parts: tuple[str | int, ...]
    match: re.Pattern[str] | None
    found: re.Pattern[str] | None
    replacement: JavaReplacement
    replaces_all: bool
    case: str

    def apply(self, components: tuple[str, ...], realm: str) -> str | None:
        if len(components) != self.count:
            return None
        values = (realm, *components)
        base = "".join(part if isinstance(part, str) else values[part] for part in self.parts)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.found is not None:
            base = self.found.sub(self.replacement.replace, base, count=0 if self.replaces_all else 1)
        return base


class KerberosRules:
    """The rules of one listener.

    >>> rules = KerberosRules(["RULE:[2:$1](kafka)s/kafka/broker/", "DEFAULT"])
    >>> rules.short_name("kafka/b.example@EXAMPLE", "EXAMPLE"), rules.short_name("alice@EXAMPLE", "EXAMPLE")
    ('broker', 'alice')

    Raises:
        ValueError: a rule cannot be read, or would fail; the message says which and why.
    """

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules: Sequence[_ShortNameRule | None] = [_parse(rule) for rule in rules]
        """None: DEFAULT."""

    def short_name(self, principal: str, default_realm: str) -> str:
        """Raises NoShortName.

        Args:
            principal: such as alice@EXAMPLE.
            default_realm: that of this machine; "" without one.
        """
        name = KerberosName.parse(principal)
        if name.realm is None:
            return name.components[0]
        for rule in self._rules:
            if rule is None:
                found = name.components[0] if name.realm == default_realm else None
            else:
                found = rule.apply(name.components, name.realm)
            if found is None:
                continue
            if _NOT_SIMPLE.search(found):
                raise NoShortName(f"a rule makes {found!r} of {principal!r}, which is no short name")
            if rule is None or not rule.case:
                return found
            return found.lower() if rule.case == "L" else found.upper()
        raise NoShortName(f"no rule of sasl.kerberos.principal.to.local.rules matches {principal!r}")


def _parse(text: str) -> _ShortNameRule | None:
    if text == "DEFAULT":
        return None
    match = _RULE.fullmatch(text)
    if match is None or not match["count"]:
        raise ValueError(f"{text!r} is neither DEFAULT nor RULE:[NUMBER:FORMAT](MATCH)s/FROM/TO/g/[LU]")
    count = int(match["count"])
    try:
        found = None if match["replacing"] is None else compile_java(match["from"])
        return _ShortNameRule(
            count,
            _parts(match["format"], count),
            None if match["matching"] is None else compile_java(match["match"]),
            found,
            JavaReplacement(()) if found is None else JavaReplacement.of(match["to"], found),
            match["all"] is not None,
            match["case"] or "",
        )
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None


def _parts(text: str, count: int) -> tuple[str | int, ...]:
    parts: list[str | int] = []
    at = 0
    for match in _PARAMETER.finditer(text):
        if not match[1]:
            raise ValueError(f"the format {text!r} has a $ without a number")
        if int(match[1]) > count:
            raise ValueError(f"the format {text!r} names component {match[1]} of {count}")
        parts += (text[at : match.start()], int(match[1]))
        at = match.end()
    return (*parts, text[at:])
