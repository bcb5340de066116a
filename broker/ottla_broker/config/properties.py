"""Java properties files, read and written as java.util.Properties does. Pure: text in, a dict out, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def decode_properties_file(data: bytes) -> str:
    r"""The text of a properties file: ISO 8859-1, whatever the machine's encoding, as java.util.Properties does.

    Every file can be read so. What ISO 8859-1 has no character for is written as \uXXXX.
    """
    return data.decode("iso-8859-1")


def keys_in_utf_8(values: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of a decoded file whose value was most likely written in UTF-8, and now has other characters.

    >>> keys_in_utf_8({"a": "z\u00c3\u00b6ne", "b": "z\u00f6ne", "c": "zone"})
    ('a',)
    """
    return tuple(name for name, value in values.items() if not value.isascii() and _is_utf_8(value))


def _is_utf_8(value: str) -> bool:
    try:
        value.encode("iso-8859-1").decode("utf-8")
    except UnicodeError:
        return False
    return True


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values in the order of the file; a key given twice keeps its last value.

    A line that begins with `#` or `!` is a comment. Key and value are parted by `=`, `:` or blanks. A line that ends
    with an odd number of backslashes goes on in the next one, whose leading blanks are dropped. Backslash escapes are
    \\t, \\n, \\r, \\f, \\uXXXX; before any other character the backslash is dropped. ValueError for a broken \\uXXXX.

    >>> parse_properties("broker.id = 7\\nlog.dirs:/a,\\\\\\n   /b\\n! a comment\\nbroker.rack zone-a")
    {'broker.id': '7', 'log.dirs': '/a,/b', 'broker.rack': 'zone-a'}
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        name, value = _split(line)
        found.pop(name, None)
        found[name] = value
    return found


def format_properties(config: Mapping[str, str]) -> str:
    r"""The text that `parse_properties` and java.util.Properties read as these keys and values, in their order.

    ASCII only: what is beyond it stands as \uXXXX, in UTF-16, since Java reads a properties file as ISO 8859-1.

    >>> format_properties({"log.dirs": "C:\\dir\n", "broker.rack": " zöne"})
    'log.dirs=C:\\\\dir\\n\nbroker.rack=\\ z\\u00f6ne\n'
    """
    return "".join(f"{_escaped_key(name)}={_escaped(value, '')}\n" for name, value in config.items())


_IN_KEYS = "=:#! "
_ESCAPED = {value: f"\\{letter}" for letter, value in _ESCAPES.items()} | {"\\": "\\\\"}


_PLAIN = re.compile(r"[A-Za-z0-9._,/-]*")
"""Most keys and many values: nothing of it is escaped anywhere."""


def _escaped(text: str, escaped_too: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    out: list[str] = []
    for position, character in enumerate(text):
        if character in escaped_too or (character == " " and position == 0):
            out.append(f"\\{character}")
        elif character in _ESCAPED:
            out.append(_ESCAPED[character])
        elif " " <= character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            out += (f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    return "".join(out)


@lru_cache(maxsize=1024)
def _escaped_key(name: str) -> str:
    """There are few keys, and the operator writes all of them again for each broker."""
    return _escaped(name, _IN_KEYS)


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANKS)
        # A line that goes on and has nothing yet leaves the next one a line of its own, which may be a comment.
        if not pending and (not line or line[0] in "#!"):
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending += line[:-1] if continues else line
        if not continues:
            yield pending
            pending = ""
    if pending:
        yield pending


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    value = line[end:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return _unescape(line[:end]), _unescape(value)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            out.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            try:
                if len(digits) != 4:
                    raise ValueError
                out.append(chr(int(digits, 16)))
            except ValueError:
                raise ValueError(
                    f"broken escape \\u{digits} in {text!r}: four hexadecimal digits must follow"
                ) from None
            position += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    # Two escapes may be the two halves of one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
