"""JAAS lines: the login module of a SASL mechanism and its options, as Apache Kafka reads `sasl.jaas.config`. Pure.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" user_alice="alice-secret";

Words and quoted text are those of Java's StreamTokenizer: comments of // and /* */, and of a single /; octal escapes
and \\t within quotes of either kind; a word begins with a letter, and a number is no value. No message has a value in
it, nor what might be one.

Source: org.apache.kafka.common.security.JaasConfig, JaasContext; java.io.StreamTokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.security.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_MODULES: Final = {PLAIN: PLAIN_MODULE, GSSAPI: KERBEROS_MODULE, OAUTHBEARER: OAUTHBEARER_MODULE}
"""Those of SCRAM have the same."""
_FLAGS = ("required", "requisite", "sufficient", "optional")

_LETTER = r"A-Za-z_$\xa0-\U0010ffff"
_TOKEN = re.compile(
    rf"""
    (?P<space>[\x00-\x20]+ | /\*(?:[^*]|\*(?!/))*(?:\*/|\Z) | /.?[^\r\n]*)
    | (?P<number>-?(?:[0-9]+\.?[0-9]*|\.[0-9]*) | -\.?)
    | (?P<word>[{_LETTER}][-.0-9{_LETTER}]*)
    | (?P<quoted>"(?:\\(?:.|\Z)|[^"\\\r\n])*"? | '(?:\\(?:.|\Z)|[^'\\\r\n])*'?)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.|\Z)", re.DOTALL)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "": "\uffff"}
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}


class JaasError(ValueError):
    """A line that cannot be used; the message has no value of it."""


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options, which may be secret."""

    module: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """The one login module of a `sasl.jaas.config`.

    >>> parse_jaas('org.example.Module required a="b\\\\"c" d=e;').options
    {'a': 'b"c', 'd': 'e'}

    Raises:
        JaasError: it is malformed, or has another number of modules.
    """
    tokens = _tokens(text)
    entries = []
    for kind, module in tokens:
        entries.append(_entry(kind, module, tokens))
    if not entries:
        raise JaasError("it names no login module")
    if len(entries) > 1:
        raise JaasError(f"it names {len(entries)} login modules, and one is allowed")
    return entries[0]


def parse_login_file(text: str, section: str) -> str | None:
    """The login module of one section of a login configuration file (java.security.auth.login.config), as a line.

    >>> parse_login_file('Client { a.B required user="x y"; }; Server { c.D required; };', "Client")
    '"a.B" required "user"="x y";'

    Returns:
        What `parse_jaas` takes; None when the file does not have the section.

    Raises:
        JaasError: the file is malformed, has a section twice, another number of modules than one in this section, or a
            property of Java in a value of it.

    Source: sun.security.provider.ConfigFile.
    """
    tokens = _tokens(text)
    sections: dict[str, list[JaasEntry]] = {}
    for kind, name in tokens:
        if kind not in ("word", "quoted") or next(tokens, None) != ("other", "{"):
            raise JaasError(f"section {len(sections) + 1} is not NAME {{ MODULE FLAG OPTIONS; }};")
        if name in sections:
            raise JaasError(f"section {len(sections) + 1} has the name of one before")
        entries = sections[name] = []
        while (token := next(tokens, ("end", ""))) != ("other", "}"):
            entries.append(_entry(*token, tokens))
        if next(tokens, None) != ("other", ";"):
            raise JaasError(f"section {len(sections)} does not end with a semicolon")
    found = sections.get(section)
    if found is None:
        return None
    if len(found) != 1:
        raise JaasError(f"section {section} names {len(found)} login modules, and one is allowed")
    if any("${" in value for value in found[0].options.values()):
        raise JaasError(f"section {section} refers to a property of Java (${{...}}), and there are none here")
    options = "".join(f" {_quoted(key)}={_quoted(value)}" for key, value in found[0].options.items())
    return f"{_quoted(found[0].module)} required{options};"


def _quoted(value: str) -> str:
    return '"' + "".join(_ESCAPED.get(one, one) for one in value) + '"'


def module_of(mechanism: str) -> str:
    """The login module of a mechanism that is served.

    >>> module_of("SCRAM-SHA-256")
    'org.apache.kafka.common.security.scram.ScramLoginModule'
    """
    return _MODULES.get(mechanism, SCRAM_MODULE)


def check_module(entry: JaasEntry, module: str, mechanism: str) -> None:
    """Raises JaasError when the entry is of another module than a mechanism needs."""
    if entry.module == module:
        return
    known = entry.module in (*_MODULES.values(), SCRAM_MODULE)
    named = entry.module if known or re.fullmatch(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)+", entry.module) else ""
    raise JaasError(f"the login module {named or 'that it names'} cannot be used: {mechanism} needs {module}")


def _entry(kind: str, module: str, tokens: Iterator[tuple[str, str]]) -> JaasEntry:
    if kind not in ("word", "quoted") or not module:
        raise JaasError("it begins with no login module")
    kind, flag = next(tokens, ("end", ""))
    if kind not in ("word", "quoted") or flag.lower() not in _FLAGS:
        raise JaasError(f"behind the login module stands none of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    for kind, key in tokens:
        if (kind, key) == ("other", ";"):
            return JaasEntry(module, options)
        equals, (value_kind, value) = next(tokens, None), next(tokens, ("end", ""))
        if equals != ("other", "=") or kind not in ("word", "quoted") or value_kind not in ("word", "quoted"):
            raise JaasError(
                f'option {len(options) + 1} is not NAME="VALUE": what is no plain word is to be quoted, and a quote '
                "or backslash in it to be written with a backslash before it"
            )
        options[key] = value
    raise JaasError("it does not end with a semicolon")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "quoted":
            body = match[0][1:]
            if body.endswith(match[0][0]) and _is_closed(match[0]):
                body = body[:-1]
            yield kind, _ESCAPE.sub(_unescaped, body)
        elif kind != "space":
            yield kind, match[0]


def _is_closed(quoted: str) -> bool:
    """Whether the last character is the closing quote: not the opening one, and not one behind a backslash."""
    before = quoted[1:-1]
    return len(quoted) > 1 and (len(before) - len(before.rstrip("\\"))) % 2 == 0


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[:1] in tuple("01234567") else _LETTERS.get(code, code)
