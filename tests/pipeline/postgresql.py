"""A PostgreSQL server of a test's own, from the programs in a jar."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.java import jars
from ottla.local.ports import free_port

NOBODY = 65534
"""PostgreSQL refuses to run as root."""


@dataclass(frozen=True)
class Database:
    """`url`: for JDBC, without user `postgres` and password. `jvm`: of a Spark session that has the driver."""

    url: str
    password: str
    jvm: Any

    def query(self, sql: str) -> list[list[str | None]]:
        """The rows of a statement, as text."""
        connection = self.jvm.java.sql.DriverManager.getConnection(self.url, "postgres", self.password)
        try:
            statement = connection.createStatement()
            if not statement.execute(sql):
                return []
            rows, found = statement.getResultSet(), []
            columns = range(1, rows.getMetaData().getColumnCount() + 1)
            while rows.next():
                found.append([rows.getString(column) for column in columns])
            return found
        finally:
            connection.close()


def driver() -> Path:
    """The jar of PostgreSQL's JDBC driver."""
    (found,) = (jars().parent / "postgresql-jars").glob("postgresql-*.jar")
    return found


@contextlib.contextmanager
def postgresql(spark: Any) -> Iterator[Database]:
    """Starts a server on the loopback address, and removes all of it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ottla-postgresql-"))
    is_root = os.getuid() == 0
    user: Any = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if is_root else {}
    try:
        (packed,) = (jars().parent / "postgresql-jars").glob("embedded-postgres-*.jar")
        safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 or later
        with zipfile.ZipFile(packed) as jar:
            (name,) = (name for name in jar.namelist() if name.endswith(".txz"))
            with tarfile.open(fileobj=io.BytesIO(jar.read(name)), mode="r:xz") as programs:
                programs.extractall(folder / "programs", **safely)
        (folder / "password").write_text("a secret")
        folder.chmod(0o755)
        (folder / "run").mkdir()
        if is_root:
            os.chown(folder / "run", NOBODY, NOBODY)
        programs_folder, data, port = folder / "programs" / "bin", folder / "run" / "data", free_port()
        make = [programs_folder / "initdb", "-D", data, "-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8"]
        subprocess.run([*make, f"--pwfile={folder / 'password'}"], check=True, capture_output=True, **user)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        control = [programs_folder / "pg_ctl", "-D", data, "-w"]
        start = [*control, "-l", folder / "run" / "log", "-o", options, "start"]
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, **user)
        try:
            url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
            jvm = spark._jvm
            jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register("org.postgresql.Driver")
            yield Database(url, "a secret", jvm)
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL, **user)
    finally:
        shutil.rmtree(folder)
