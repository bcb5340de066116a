"""Java properties files, read as java.util.Properties reads them. Pure: text in, a dict out."""

from __future__ import annotations

from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


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


def _logical_lines(text: str) -> Iterator[str]:
    pending: str | None = None
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(_BLANKS)
        if pending is None and (not line or line[0] in "#!"):
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        line = (pending or "") + (line[:-1] if continues else line)
        if continues:
            pending = line
        else:
            pending = None
            yield line
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
    return "".join(out)
