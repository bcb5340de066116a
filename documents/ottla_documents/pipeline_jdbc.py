"""spec.sink.jdbc of a KafkaPipeline: rows become rows of a database's table, one for each key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from ottla_documents.schema.marks import Items, Text

PREFIX = "jdbc:postgresql:"
MODES = ("append", "update")
PASSWORD_VARIABLE = "OTTLA_JDBC_PASSWORD"
_URL = Text(
    rf"{PREFIX}[\s\S]*",
    f"an address that begins with {PREFIX}//; other databases are not served",
    most=1024,
    is_hidden=True,
)
_VARIABLE = Text(
    r"[A-Za-z_][A-Za-z0-9_]*",
    "the name of an environment variable, and not the password itself",
    most=253,
    is_hidden=True,
)
COLUMN = r"[^\W\d]\w*"
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


@dataclass(frozen=True, slots=True)
class PasswordSecret:
    """A Secret of this namespace, from which the driver gets that variable when it starts. Only on Kubernetes."""

    name: Annotated[str, Text(least=1, most=253)]
    """The name of the Secret."""
    key: Annotated[str, Text(least=1, most=253)]
    """Its key with the password."""


@dataclass(frozen=True, slots=True)
class JdbcSinkDocument:
    """A table of PostgreSQL that is there, with one row for each key. Rows are inserted, or replace the row of their
    key; each batch is one transaction. The image has PostgreSQL's JDBC driver among the jars of Spark."""

    url: Annotated[str, _URL]
    """jdbc:postgresql://HOST:PORT/DATABASE, without user and password."""
    table: Annotated[str, Text(least=1, most=127)]
    """TABLE or SCHEMA.TABLE. The user may create tables in its schema."""
    key: Annotated[tuple[Annotated[str, Text(least=1, most=63)], ...], Items(least=1, most=16)]
    """The columns of a unique index of the table."""
    latest_by: Annotated[str, Text(most=63)] = ""
    """A column whose highest value is the latest row of a key within a batch. Without it a batch with several rows of a
    key fails."""
    user: Annotated[str, Text(most=63)] = ""
    """The user of the database."""
    password_env: Annotated[str, _VARIABLE] = ""
    """The environment variable with the password. Default: OTTLA_JDBC_PASSWORD, where it is set."""
    password_secret: PasswordSecret | None = None

    def problems(self) -> Iterator[tuple[str, str]]:
        if re.search(r"[?&]password=|//[^/?]*@", self.url):
            yield "url", "holds a password or user; give them with user and passwordEnv"
        if not re.fullmatch(_TABLE, self.table):
            yield "table", f"{self.table!r} is no TABLE or SCHEMA.TABLE"
        for column in self.key:
            if not re.fullmatch(COLUMN, column):
                yield "key", f"{column!r} is no name of a column"
        if self.latest_by and not re.fullmatch(COLUMN, self.latest_by):
            yield "latestBy", f"{self.latest_by!r} is no name of a column"

    @property
    def sink(self) -> JdbcSink:
        secret = self.password_secret
        return JdbcSink(
            self.url,
            self.table,
            self.key,
            self.latest_by,
            self.user,
            self.password_env,
            None if secret is None else (secret.name, secret.key),
        )
