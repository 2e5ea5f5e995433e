"""Real databases for the tests of the SQL queries, each started once and stopped in the end."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

from needs import cannot_run

Row = tuple[Any, ...]
POSTGRES_PROGRAMS = [str(folder) for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
"""Where Debian keeps them, newest first; elsewhere they are on the path."""


class DuckDB:
    """In the process itself."""

    dialect = "duckdb"
    schema = "main"
    mark = "?"
    examples, slices = 30, 4
    types: ClassVar[dict[type, str]] = {int: "BIGINT", str: "VARCHAR", float: "DOUBLE", Decimal: "DECIMAL(9, 2)"}

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def load(self, table: str, columns: dict[str, type], rows: Sequence[Row]) -> None:
        """Put ``rows`` into a new table; columns by name, with the type of their values."""
        name = quoted(table)
        fields = ", ".join(f"{quoted(column)} {self.types[kind]}" for column, kind in columns.items())
        cursor = self.connection.cursor()
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
        cursor.execute(f"CREATE TABLE {name} ({fields})")
        if rows:
            cursor.executemany(f"INSERT INTO {name} VALUES ({', '.join([self.mark] * len(columns))})", rows)

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The answer, as one mapping per row."""
        cursor = self.connection.cursor()
        cursor.execute(query)
        names = [about[0] for about in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


class Postgres(DuckDB):
    """A server of its own, on loopback."""

    dialect = "postgres"
    schema = "public"
    mark = "%s"
    examples, slices = 15, 4
    types: ClassVar[dict[type, str]] = {int: "BIGINT", str: "TEXT", float: "DOUBLE PRECISION", Decimal: "NUMERIC"}


class Spark:
    """Local mode with one core."""

    dialect = "spark"
    schema = "global_temp"
    examples, slices = 3, 15
    types: ClassVar[dict[type, str]] = {int: "bigint", str: "string", float: "double", Decimal: "decimal(9,2)"}

    def __init__(self, session: Any) -> None:
        self.session = session

    def load(self, table: str, columns: dict[str, type], rows: Sequence[Row]) -> None:
        schema = ", ".join(f"`{name.replace('`', '``')}` {self.types[kind]}" for name, kind in columns.items())
        frame = self.session.createDataFrame(list(rows), schema)
        frame.createOrReplaceTempView(f"`{table.replace('`', '``')}`")
        frame.createOrReplaceGlobalTempView(f"`{table.replace('`', '``')}`")

    def ask(self, query: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in self.session.sql(query).collect()]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def duckdb() -> Iterator[DuckDB]:
    import duckdb as engine

    with engine.connect(config={"threads": 1}) as connection:
        yield DuckDB(connection)


@contextmanager
def postgres() -> Iterator[Postgres]:
    import psycopg

    path = os.pathsep.join([os.environ.get("PATH", ""), *POSTGRES_PROGRAMS])
    programs = [shutil.which(name, path=path) for name in ("initdb", "pg_ctl")]
    if None in programs:
        cannot_run("the queries in PostgreSQL", "no PostgreSQL: apt-get install postgresql")
    # The server refuses to run as root; the package brings a user for it.
    owner: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}

    def run(*command: str | Path | None) -> None:
        done = subprocess.run([str(c) for c in command], cwd=folder, text=True, capture_output=True, **owner)
        assert done.returncode == 0, done.stdout + done.stderr

    with tempfile.TemporaryDirectory(prefix="openauc-postgres-") as folder:
        data, password = Path(folder, "data"), secrets.token_hex(16)
        Path(folder, "password").write_text(password)
        if owner:
            for path_of in (folder, Path(folder, "password")):
                shutil.chown(path_of, owner["user"], owner["group"])
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        initdb, pg_ctl = programs
        run(
            initdb,
            "-D",
            data,
            "-U",
            "tests",
            "-A",
            "scram-sha-256",
            "--pwfile",
            f"{folder}/password",
            "-N",
            "-E",
            "UTF8",
        )
        run(pg_ctl, "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            where = {"host": "127.0.0.1", "port": port, "user": "tests", "password": password, "dbname": "postgres"}
            with psycopg.connect(**where, autocommit=True) as connection:
                yield Postgres(connection)
        finally:
            run(pg_ctl, "-D", data, "-m", "immediate", "stop")


@contextmanager
def spark() -> Iterator[Spark]:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        cannot_run("the queries in Spark", "no Java: apt-get install openjdk-17-jre-headless")
    with tempfile.TemporaryDirectory(prefix="openauc-spark-", ignore_cleanup_errors=True) as folder:
        settings = {
            "spark.master": "local[1]",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # starts sooner
            "spark.local.dir": folder,
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": folder,
            "spark.ui.showConsoleProgress": "false",
        }
        session = SparkSession.builder.config(map=settings).getOrCreate()
        gateway: Any = SparkContext._gateway
        try:
            yield Spark(session)
        finally:
            session.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()  # ends Java now, not with the last test of all
            gateway.proc.wait(60)
            SparkContext._gateway = SparkContext._jvm = None


ENGINES = {"duckdb": duckdb, "postgres": postgres, "spark": spark}
