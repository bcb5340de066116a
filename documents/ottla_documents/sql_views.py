"""Finds the views that a query reads, without Spark: the names after FROM and JOIN.

Not a parser of SQL: Spark checks the query when the pipeline is planned. It finds a view that no step has declared
before any JVM starts, and keeps silent where it is not sure.
"""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?P<quoted>`(?:[^`]|``)+`)|(?P<word>[^\W\d]\w*)|(?P<other>\S)""",
    re.DOTALL,
)
QUERY_WORDS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "(")
"""How a query begins: a step reads, and never changes anything."""
_NO_NAMES = ("VALUES", "LATERAL", "TABLE", "STREAM", "IDENTIFIER", "ONLY", "SELECT")
_FROM_IS_NO_CLAUSE = ("EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY")
"""Functions that have FROM between their arguments."""


def _tokens(sql: str) -> list[str]:
    """Words, quoted names and single signs; no comments and no literals.

    >>> _tokens("select 'a from b' x -- from c")
    ['select', "''", 'x']
    """
    found = []
    for match in _TOKEN.finditer(sql):
        if match["quoted"] or match["word"] or match["other"]:
            found.append(match[0])
        elif match[0][0] in "'\"":
            found.append("''")
    return found


def is_query(sql: str) -> bool:
    """Whether the text begins as a query.

    >>> is_query("-- all\\nselect 1"), is_query("drop table x"), is_query("")
    (True, False, False)
    """
    tokens = _tokens(sql)
    return bool(tokens) and tokens[0].upper() in QUERY_WORDS


def views_read(sql: str) -> tuple[str, ...]:
    """The names after FROM and JOIN in the order of the text; not those that WITH declares, functions, or a.b.

    >>> views_read("with a as (select * from source) select extract(year from ts) from a join `b` on true")
    ('source', 'b')
    >>> views_read("select * from range(3) where x is distinct from y")
    ()
    """
    tokens = _tokens(sql)
    upper = [token.upper() for token in tokens] + ["", "", ""]
    declared = _declared(tokens, upper) if "WITH" in upper else set()
    found: list[str] = []
    calls: list[str] = []  # the word before each open parenthesis
    for index, word in enumerate(upper):
        if word == "(":
            calls.append(upper[index - 1] if index else "")
        elif word == ")" and calls:
            calls.pop()
        elif word == "JOIN" or (word == "FROM" and not _is_argument(upper, index, calls)):
            name = tokens[index + 1] if index + 1 < len(tokens) else ""
            is_name = name[:1] == "`" or re.fullmatch(r"[^\W\d]\w*", name)
            if not is_name or upper[index + 1] in _NO_NAMES or upper[index + 2] in ("(", "."):
                continue
            name = name.strip("`")
            if name.lower() not in declared and name not in found:
                found.append(name)
    return tuple(found)


def _is_argument(upper: list[str], index: int, calls: list[str]) -> bool:
    if calls and calls[-1] in _FROM_IS_NO_CLAUSE:
        return True
    before = upper[max(0, index - 3) : index]
    return before[-1:] == ["DISTINCT"] and (before[-2:-1] == ["IS"] or before[-3:-1] == ["IS", "NOT"])


def _declared(tokens: list[str], upper: list[str]) -> set[str]:
    """The names of WITH: `name AS (`, `name (columns) AS (`. More names than there are do no harm."""
    found = set()
    for index, word in enumerate(upper):
        if word != "AS" or upper[index + 1] != "(" or index == 0:
            continue
        before = index - 1
        if upper[before] == ")":
            while before > 0 and upper[before] != "(":
                before -= 1
            before -= 1
        found.add(tokens[before].strip("`").lower())
    return found
