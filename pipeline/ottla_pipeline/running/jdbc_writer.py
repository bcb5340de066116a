"""Writes the batches of a query into a table of PostgreSQL, each once. Imports pyspark.

The driver's statements go through the JVM's JDBC driver, which Spark's tasks use too: one program to install. Rules of
`upsert_statements`.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla_documents.pipeline_jdbc import PASSWORD_VARIABLE, JdbcSink
from ottla_pipeline.errors import DatabaseUnreachable, PipelineError, UnknownReplay
from ottla_pipeline.running.failure_reasons import failure_reason
from ottla_pipeline.running.upsert_statements import UpsertStatements
from ottla_pipeline.sink.marker import Action, Evidence, decide

DRIVER = "org.postgresql.Driver"
_UNREACHABLE = ("08000", "08001", "08003", "08006", "53", "57P")
"""SQLSTATEs that no document causes: no connection, no resources, a server that starts or stops. 08004: no password."""


class JdbcWriter:
    """What `foreachBatch` calls."""

    def __init__(self, spark: SparkSession, sink: JdbcSink, pipeline: str, query_id: Callable[[], str]) -> None:
        """`query_id`: Spark's id of the query, another one for each checkpoint; known once the query runs.

        PipelineError when the password or the driver is missing.
        """
        self._spark = spark
        self._sink = sink
        self._pipeline = pipeline
        self._query_id = query_id
        if sink.password_variable and sink.password_variable not in os.environ:
            raise PipelineError(f"spec.sink.jdbc.passwordEnv: the variable {sink.password_variable} is not set")
        self._password = os.environ.get(sink.password_variable or PASSWORD_VARIABLE, "")
        if not self._jvm.org.apache.spark.util.Utils.classIsLoadable(DRIVER):
            raise PipelineError(
                "spec.sink.jdbc: PostgreSQL's driver is not on Spark's class path: name it with --conf "
                "spark.jars=postgresql-42.7.14.jar, or --conf spark.jars.packages=org.postgresql:postgresql:42.7.14, "
                "which Spark fetches from Maven Central"
            )
        self._jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register(DRIVER)

    def prepare(self, columns: list[str]) -> None:
        """Checks table, columns, unique index and privileges. PipelineError says what the database says."""
        missing = [column for column in (*self._sink.key, self._sink.latest_by) if column and column not in columns]
        if missing:
            field = "latestBy" if missing == [self._sink.latest_by] else "key"
            column_names = ", ".join(columns)
            raise PipelineError(f"spec.sink.jdbc.{field}: the view has no column {missing[0]}; it has {column_names}")
        with self._connection() as connection:
            statements = UpsertStatements(self._sink, self._pipeline, columns)
            connection.run(statements.check)
            connection.run(statements.create_batches)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Writes a batch, unless the table has it. UnknownReplay where the table has a later one."""
        statements = UpsertStatements(self._sink, f"{self._pipeline}/{self._query_id()}", rows.columns)
        with self._connection() as connection:
            if _is_written(connection, statements.known_batch, batch):
                return
            for table in connection.texts(statements.left_behind):
                connection.run(statements.drop(table))
            staging = statements.staging(f"{batch}_{uuid.uuid4().hex[:8]}")
            connection.run(statements.create_staging(staging))
            try:
                self._copy(rows, staging)
                if ambiguous := connection.texts(statements.ambiguous(staging)):
                    raise PipelineError(
                        f"spec.sink.jdbc.latestBy: a batch has several rows with the {', '.join(self._sink.key)} "
                        f"{ambiguous[0]!r}: name the column whose highest value is the latest, or keep one in a step"
                    )
                self._move(connection, statements, staging, batch)
            finally:
                with contextlib.suppress(PipelineError):  # the next batch drops it
                    connection.run(f"DROP TABLE {staging}")

    def _copy(self, rows: DataFrame, staging: str) -> None:
        if self._sink.latest_by:
            all_columns = F.struct(*(F.col(column) for column in rows.columns))
            rank = F.struct(self._sink.latest_by)  # a struct is never null: max_by leaves out rows whose rank is
            latest = F.max_by(all_columns, rank).alias("latest")
            rows = rows.groupBy(*self._sink.key).agg(latest).select("latest.*")
        # stringtype: the database makes of a text what its column is, such as uuid or jsonb
        options = {"url": self._sink.url, "dbtable": staging, "driver": DRIVER, "stringtype": "unspecified"}
        try:
            rows.write.format("jdbc").options(**options, **self._login).mode("append").save()
        except (PySparkException, Py4JJavaError) as error:
            raise PipelineError(f"spec.sink.jdbc: {failure_reason(str(error))}") from None

    def _move(self, connection: _Database, statements: UpsertStatements, staging: str, batch: int) -> None:
        with connection.transaction():
            make, lock = statements.lock_batch
            connection.run(make)
            if _is_written(connection, lock, batch):  # by another process meanwhile
                return
            connection.run(statements.upsert(staging))
            connection.run(statements.note_batch(batch))

    @property
    def _login(self) -> dict[str, str]:
        login = {"user": self._sink.user, "password": self._password}
        return {name: value for name, value in login.items() if value}

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    @contextlib.contextmanager
    def _connection(self) -> Iterator[_Database]:
        properties = self._jvm.java.util.Properties()
        for name, value in self._login.items():
            properties.setProperty(name, value)
        with _told():
            opened = self._jvm.java.sql.DriverManager.getConnection(self._sink.url, properties)
        try:
            yield _Database(opened)
        finally:
            opened.close()


class _Database:
    """A connection of the JVM, whose errors are PipelineErrors. Each statement commits, but in a `transaction`."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def run(self, sql: str) -> None:
        with _told():
            statement = self._opened.createStatement()
            try:
                statement.execute(sql)
            finally:
                statement.close()

    def texts(self, sql: str) -> list[str]:
        """The first column of all rows."""
        with _told():
            statement = self._opened.createStatement()
            try:
                rows = statement.executeQuery(sql)
                found = []
                while rows.next():
                    found.append(rows.getString(1))
                return found
            finally:
                statement.close()

    def number(self, sql: str) -> int:
        """The number in the only row; -1 when there is none."""
        found = self.texts(sql)
        return int(found[0]) if found else -1

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """The statements of the block, all or none."""
        with _told():
            self._opened.setAutoCommit(False)
        try:
            yield
            with _told():
                self._opened.commit()
        except BaseException:  # the end of the transaction below would commit it
            with contextlib.suppress(PipelineError), _told():
                self._opened.rollback()
            raise
        finally:
            with contextlib.suppress(PipelineError), _told():
                self._opened.setAutoCommit(True)


def _is_written(connection: _Database, known_batch: str, batch: int) -> bool:
    """Whether the table has the batch. UnknownReplay where it has a later one; see `marker`.

    Spark runs none again but the last one. A batch without the one before it is written: `ottla_batches` forgets none,
    so the query has had another sink until then.
    """
    decision = decide(connection.number(known_batch) + 1, batch, Evidence(first_new=0))
    if decision.action is Action.REFUSE:
        raise UnknownReplay(f"spec.sink.jdbc: {decision.reason}")
    return decision.action is Action.SKIP


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        message = f"spec.sink.jdbc: {str(cause.getMessage()).splitlines()[0]}"
        state = str(cause.getSQLState()) if hasattr(cause, "getSQLState") else ""
        if not state.startswith(_UNREACHABLE):
            raise PipelineError(message) from None
        if (reason := cause.getCause()) is not None:  # the driver does not name a host that it does not find
            message += f" ({str(reason.toString()).splitlines()[0]})"
        raise DatabaseUnreachable(message) from None
