"""Rows of real Spark in a table of real PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla_documents.pipeline_jdbc import JdbcSink
from ottla_pipeline.errors import DatabaseUnreachable, PipelineError
from tests.pipeline.postgresql import Database, driver, postgresql

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.long]

DOCUMENT = """
apiVersion: kafka.ottla.dev/v1alpha1
kind: KafkaPipeline
metadata: {name: totals}
spec:
  source: {files: {path: in, format: json, schema: "carrier string, delay int"}}
  steps:
  - {name: totals, sql: "SELECT carrier, count(*) AS flights, sum(delay) AS delay FROM source GROUP BY carrier"}
  sink:
    outputMode: update
    jdbc: {url: "URL", table: totals, key: [carrier], user: postgres, passwordEnv: TOTALS_PASSWORD}
  trigger: {availableNow: true}
  checkpoint: {path: checkpoint}
"""


@pytest.fixture(scope="module")
def database(spark: Any) -> Iterator[Database]:
    with postgresql(spark) as found:
        yield found


@pytest.fixture
def table(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A new table `flights`."""
    monkeypatch.setenv("FLIGHTS_PASSWORD", database.password)
    database.query("DROP TABLE IF EXISTS flights, ottla_batches")
    database.query("CREATE TABLE flights (id uuid PRIMARY KEY, carrier text, delay int, seen timestamptz)")
    return database


def writer(spark: Any, table: Database, /, *, query: str = "a", **changed: Any) -> Any:
    from ottla_pipeline.running.jdbc_writer import JdbcWriter

    fields = {"table": "flights", "key": ("id",), "user": "postgres", "password_variable": "FLIGHTS_PASSWORD"}
    sink = JdbcSink(**({"url": table.url} | fields | changed))
    return JdbcWriter(spark, sink, "flights", lambda: query)


def rows(spark: Any, *rows: tuple[int, str | None, int]) -> Any:
    ids = [(f"00000000-0000-0000-0000-{number:012}", carrier, delay) for number, carrier, delay in rows]
    return spark.createDataFrame(ids, "id string, carrier string, delay int").repartition(2)


def flights(table: Database) -> list[list[str | None]]:
    return table.query("SELECT right(id::text, 1), carrier, delay FROM flights ORDER BY id")


def leftovers(table: Database) -> list[list[str | None]]:
    ours = r"tablename LIKE 'ottla\_%' AND tablename <> 'ottla_batches'"
    return table.query(f"SELECT tablename FROM pg_tables WHERE {ours}")


def test_rows_are_added_and_replaced_by_key_and_other_columns_stay(spark: Any, table: Database) -> None:
    write = writer(spark, table)
    write.prepare(["id", "carrier", "delay"])
    write(rows(spark, (1, "UA", 5), (2, None, 6)), 0)
    table.query("UPDATE flights SET seen = '2026-01-01 00:00Z'")
    write(rows(spark, (2, "AA", 7), (3, "DL", 8)), 1)
    assert flights(table) == [["1", "UA", "5"], ["2", "AA", "7"], ["3", "DL", "8"]]
    assert table.query("SELECT count(seen) FROM flights") == [["2"]]
    assert leftovers(table) == []


def test_a_batch_that_is_begun_again_is_written_once_and_another_query_writes_its_own(
    spark: Any, table: Database
) -> None:
    write = writer(spark, table)
    write.prepare(["id", "carrier", "delay"])
    write(rows(spark, (1, "UA", 5)), 3)
    table.query("UPDATE flights SET delay = 100")
    write(rows(spark, (1, "UA", 6)), 3)
    assert flights(table) == [["1", "UA", "100"]]
    writer(spark, table, query="b")(rows(spark, (1, "UA", 7)), 0)
    assert flights(table) == [["1", "UA", "7"]]


def test_a_checkpoint_that_was_put_back_is_told_and_its_rows_are_not_left_out_in_silence(
    spark: Any, table: Database
) -> None:
    write = writer(spark, table)
    write.prepare(["id", "carrier", "delay"])
    write(rows(spark, (1, "UA", 5)), 3)
    # Spark plans a batch of this number again, with all rows that are there now.
    with pytest.raises(PipelineError, match=r"spec\.sink\.jdbc: batch 3 is committed, which comes after batch 2: the"):
        write(rows(spark, (2, "AA", 6)), 2)
    assert flights(table) == [["1", "UA", "5"]]


def test_a_batch_that_another_process_writes_meanwhile_is_not_written_again(spark: Any, table: Database) -> None:
    write = writer(spark, table)
    write.prepare(["id", "carrier", "delay"])
    copy = write._copy

    def copy_slowly(*given: Any) -> None:
        copy(*given)
        noted = f"INSERT INTO ottla_batches (query, batch) VALUES ('flights/a', {written})"
        table.query(f"{noted} ON CONFLICT (query) DO UPDATE SET batch = EXCLUDED.batch")

    write._copy = copy_slowly
    written = 3
    write(rows(spark, (1, "UA", 5)), 3)
    written = 5
    with pytest.raises(PipelineError, match="batch 5 is committed, which comes after batch 4"):
        write(rows(spark, (2, "UA", 5)), 4)
    assert flights(table) == [] and leftovers(table) == []


def test_a_batch_that_is_interrupted_leaves_nothing(
    spark: Any, table: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla_pipeline.running.upsert_statements import UpsertStatements

    def interrupt(statements: UpsertStatements, batch: int) -> str:
        raise KeyboardInterrupt

    write = writer(spark, table)
    write.prepare(["id", "carrier", "delay"])
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(UpsertStatements, "note_batch", interrupt)
        write(rows(spark, (1, "UA", 5)), 0)
    assert flights(table) == []
    write(rows(spark, (1, "UA", 6)), 0)
    assert flights(table) == [["1", "UA", "6"]]


def test_staging_tables_of_killed_runs_are_dropped(spark: Any, table: Database) -> None:
    write = writer(spark, table)
    write.prepare(["id", "carrier", "delay"])
    write(rows(spark, (1, "UA", 5)), 0)
    from ottla_pipeline.running.upsert_statements import UpsertStatements

    statements = UpsertStatements(JdbcSink("", "flights", ("id",)), "flights/a", ["id"])
    table.query(statements.create_staging(statements.staging("1_killed")))
    table.query("CREATE TABLE ottla_of_somebody_else ()")
    write(rows(spark, (1, "UA", 6)), 1)
    assert leftovers(table) == [["ottla_of_somebody_else"]]
    table.query("DROP TABLE ottla_of_somebody_else")


def test_the_latest_row_of_a_key_wins_within_a_batch(spark: Any, table: Database) -> None:
    several = rows(spark, (1, "old", 1), (1, "new", 9), (1, "mid", 5), (2, "only", 0))
    without = writer(spark, table)
    without.prepare(several.columns)
    with pytest.raises(PipelineError, match=r"spec\.sink\.jdbc\.latestBy: a batch has several rows with the id '0000"):
        without(several, 0)
    assert flights(table) == [] and leftovers(table) == []
    writer(spark, table, latest_by="delay")(several, 0)
    assert flights(table) == [["1", "new", "9"], ["2", "only", "0"]]


@pytest.mark.parametrize(
    ("changed", "columns", "problem"),
    [
        ({"table": "fligths"}, ["id"], 'spec.sink.jdbc: ERROR: relation "fligths" does not exist'),
        ({}, ["id", "carier"], 'spec.sink.jdbc: ERROR: column "carier" of relation "flights" does not exist'),
        ({"key": ("carrier",)}, ["carrier"], "spec.sink.jdbc: ERROR: there is no unique or exclusion constraint"),
        ({}, ["carrier"], "spec.sink.jdbc.key: the view has no column id; it has carrier"),
        ({"latest_by": "at"}, ["id"], "spec.sink.jdbc.latestBy: the view has no column at; it has id"),
        ({"password_variable": ""}, ["id"], "spec.sink.jdbc: The server requested "),
        ({"password_variable": "NOBODYS"}, ["id"], "spec.sink.jdbc.passwordEnv: the variable NOBODYS is not set"),
    ],
)
def test_what_the_database_refuses_is_told_before_the_first_batch(
    spark: Any, table: Database, changed: dict[str, Any], columns: list[str], problem: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        writer(spark, table, **changed).prepare(columns)
    assert str(refused.value).startswith(problem)
    assert not isinstance(refused.value, DatabaseUnreachable)


def test_a_database_that_is_away_is_no_mistake_of_the_document(spark: Any, table: Database) -> None:
    with pytest.raises(DatabaseUnreachable, match=r"spec\.sink\.jdbc: Connection to 127\.0\.0\.1:1 refused"):
        writer(spark, table, url="jdbc:postgresql://127.0.0.1:1/postgres").prepare(["id"])
    with pytest.raises(DatabaseUnreachable, match=r"^spec\.sink\.jdbc: .*no-such-host\.invalid"):
        writer(spark, table, url="jdbc:postgresql://no-such-host.invalid/postgres").prepare(["id"])


def test_a_document_keeps_totals_in_a_table(database: Database, tmp_path: Path) -> None:
    database.query("CREATE TABLE totals (carrier text PRIMARY KEY, flights bigint, delay bigint)")
    (tmp_path / "in").mkdir()
    (tmp_path / "p.yaml").write_text(DOCUMENT.replace("URL", database.url))
    command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", "-f", str(tmp_path / "p.yaml")]
    batches = '{"carrier":"UA","delay":5}\n{"carrier":"AA","delay":1}\n', '{"carrier":"UA","delay":7}\n'
    for name, lines in enumerate(batches):
        (tmp_path / "in" / f"{name}.json").write_text(lines)
        done = subprocess.run(
            [*command, "--conf", f"spark.jars={driver()}"],
            cwd=tmp_path,
            env=os.environ | {"TOTALS_PASSWORD": database.password},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert sorted(database.query("SELECT * FROM totals")) == [["AA", "1", "1"], ["UA", "2", "12"]]
