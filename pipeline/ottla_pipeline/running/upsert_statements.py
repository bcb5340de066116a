"""The SQL of a sink that is a table of PostgreSQL. Pure.

Each batch is copied into a staging table by Spark's tasks, side by side. Then one transaction of the driver moves it
into the table and notes the batch in BATCHES, so that a batch which Spark runs again is written once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from ottla_documents.pipeline_jdbc import JdbcSink

BATCHES = "ottla_batches"


@dataclass(frozen=True, slots=True)
class UpsertStatements:
    """The statements for one query. `query`: its name and Spark's id of it. `columns`: of the view."""

    sink: JdbcSink
    query: str
    columns: Sequence[str]

    @property
    def create_batches(self) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {self._beside(BATCHES)} (query text PRIMARY KEY, batch bigint NOT NULL, "
            "written_at timestamptz NOT NULL DEFAULT now())"
        )

    @property
    def check(self) -> str:
        """Fails when the table, one of its columns, the unique index or a privilege is missing; writes nothing."""
        return f"EXPLAIN {self._upsert(self._target, 'false')}"

    @property
    def known_batch(self) -> str:
        return f"SELECT batch FROM {self._beside(BATCHES)} WHERE query = {_text(self.query)}"

    @property
    def lock_batch(self) -> Sequence[str]:
        """Makes the row of the query, and locks it until the transaction ends."""
        return (
            f"INSERT INTO {self._beside(BATCHES)} (query, batch) VALUES ({_text(self.query)}, -1) "
            "ON CONFLICT DO NOTHING",
            f"{self.known_batch} FOR UPDATE",
        )

    def note_batch(self, batch: int) -> str:
        return (
            f"UPDATE {self._beside(BATCHES)} SET batch = {batch}, written_at = now() WHERE query = {_text(self.query)}"
        )

    def staging(self, attempt: str) -> str:
        """The name of a staging table. `attempt`: makes it this one's own, as tasks of a former one may still write."""
        return self._beside(f"{self.staging_prefix}{attempt}")

    @property
    def staging_prefix(self) -> str:
        return f"ottla_{hashlib.sha256(self.query.encode()).hexdigest()[:12]}_"

    @property
    def left_behind(self) -> str:
        """The staging tables of runs that were killed."""
        schema = _text(self._schema) if self._schema else "current_schema()"
        pattern = _text(self.staging_prefix.replace("_", r"\_") + "%")
        return f"SELECT tablename FROM pg_tables WHERE schemaname = {schema} AND tablename LIKE {pattern}"

    def drop(self, table: str) -> str:
        """`table`: a name of `left_behind`."""
        return f"DROP TABLE IF EXISTS {self._beside(table)}"

    def create_staging(self, staging: str) -> str:
        return f"CREATE UNLOGGED TABLE {staging} AS SELECT {self._list(self.columns)} FROM {self._target} WITH NO DATA"

    def ambiguous(self, staging: str) -> str:
        """A key with rows that differ; a task that was repeated leaves equal rows only."""
        keys = self._list(self.sink.key)
        return (
            f"SELECT concat_ws(', ', {keys}) FROM {staging} staged GROUP BY {keys} "
            "HAVING count(DISTINCT staged::text) > 1 LIMIT 1"
        )

    def upsert(self, staging: str) -> str:
        return self._upsert(staging, "true")

    def _upsert(self, rows: str, condition: str) -> str:
        keys, columns = self._list(self.sink.key), self._list(self.columns)
        others = [_name(column) for column in self.columns if column not in self.sink.key]
        changes = ", ".join(f"{column} = EXCLUDED.{column}" for column in others)
        return (
            f"INSERT INTO {self._target} ({columns}) SELECT DISTINCT ON ({keys}) {columns} FROM {rows} "
            f"WHERE {condition} ON CONFLICT ({keys}) DO {f'UPDATE SET {changes}' if others else 'NOTHING'}"
        )

    @property
    def _schema(self) -> str:
        return self.sink.table.rpartition(".")[0]

    @property
    def _target(self) -> str:
        return ".".join(_name(part) for part in self.sink.table.split("."))

    def _beside(self, table: str) -> str:
        return f"{_name(self._schema)}.{_name(table)}" if self._schema else _name(table)

    @staticmethod
    def _list(columns: Sequence[str]) -> str:
        return ", ".join(map(_name, columns))


def _name(name: str) -> str:
    """
    >>> print(_name('a "b" c'))
    "a ""b"" c"
    """
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
