"""spec.sink.jdbc of a KafkaPipeline: rows become rows of a database's table, one for each key."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ottla_documents.fields import Fields

PREFIX = "jdbc:postgresql:"
MODES = ("append", "update")
PASSWORD_VARIABLE = "OTTLA_JDBC_PASSWORD"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_TABLE = r"[^.\"\x00]+(\.[^.\"\x00]+)?"


@dataclass(frozen=True, slots=True)
class JdbcSink:
    """A table of PostgreSQL.

    `key`: the columns of a unique index. `latest_by`: the column by which the latest row of a key is chosen within a
    batch; "" where a batch has each key once. `password_variable`: the environment variable with the password, "" for
    PASSWORD_VARIABLE where it is set. `password_secret`: name and key of the Secret from which the operator sets it.
    """

    url: str
    table: str
    key: tuple[str, ...]
    latest_by: str = ""
    user: str = ""
    password_variable: str = ""
    password_secret: tuple[str, str] | None = None


def parse_jdbc(parent: Fields, column_pattern: str) -> JdbcSink:
    """Reads `jdbc` below sink."""
    fields = parent.child("jdbc")
    sink = JdbcSink(
        _url(fields),
        fields.text("table"),
        fields.texts("key"),
        fields.text("latestBy", ""),
        fields.text("user", ""),
        fields.text("passwordEnv", ""),
        _secret(fields),
    )
    if fields.has("table") and not re.fullmatch(_TABLE, sink.table):
        fields.problem("table", f"{sink.table!r} is no TABLE or SCHEMA.TABLE")
    if not sink.key:
        fields.problem("key", "is required: the columns of a unique index of the table")
    for column in sink.key:
        if not re.fullmatch(column_pattern, column):
            fields.problem("key", f"{column!r} is no name of a column")
    if sink.latest_by and not re.fullmatch(column_pattern, sink.latest_by):
        fields.problem("latestBy", f"{sink.latest_by!r} is no name of a column")
    if sink.password_variable and not re.fullmatch(_VARIABLE, sink.password_variable):
        fields.problem("passwordEnv", "is the name of an environment variable, not the password itself")
    fields.finish()
    return sink


def _secret(fields: Fields) -> tuple[str, str] | None:
    if not fields.has("passwordSecret"):
        return None
    secret = fields.child("passwordSecret")
    found = secret.text("name"), secret.text("key")
    secret.finish()
    return found


def _url(fields: Fields) -> str:
    url = fields.text("url")
    if not isinstance(fields.values.get("url"), str):
        return url
    if not url.startswith(PREFIX):
        fields.problem("url", f"must begin with {PREFIX}//; other databases are not served")
    elif re.search(r"[?&]password=|//[^/?]*@", url):
        fields.problem("url", "holds a password or user; give them with user and passwordEnv")
    return url
