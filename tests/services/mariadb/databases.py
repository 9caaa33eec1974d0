# SPDX-License-Identifier: Apache-2.0

"""Databases of our own in a MariaDB, and what it was asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pymysql

_LOCK = "os_prefilter_with_nova"
# Seconds that one run of the tests waits for another one to end.
_OTHERS_NEED = 900


class Databases:
    def __init__(self, url: str, connection: pymysql.Connection) -> None:
        self._url = url
        self._connection = connection
        self.token = f"os_prefilter_{uuid4().hex[:12]}"

    def create(self, name: str) -> str:
        """Create a database; return its URL."""
        self.run(f"CREATE DATABASE {self.token}_{name}")
        return f"{self._url}/{self.token}_{name}"

    def copy(self, name: str, other: str) -> str:
        """Create a database with the empty tables of another of ours; return
        its URL.
        """
        url = self.create(other)
        for (table,) in self.run(f"SHOW TABLES FROM {self.token}_{name}"):
            self.run(
                f"CREATE TABLE {self.token}_{other}.{table} LIKE"
                f" {self.token}_{name}.{table}"
            )
        return url

    def drop_all(self) -> None:
        for (name,) in self.run("SHOW DATABASES LIKE %s", (f"{self.token}%",)):
            self.run(f"DROP DATABASE {name}")

    @contextmanager
    def general_log(self) -> Iterator[None]:
        """Have MariaDB keep each statement in ``mysql.general_log``."""
        self.run("SET GLOBAL log_output = 'TABLE'")
        self.run("SET GLOBAL general_log = ON")
        try:
            yield
        finally:
            self.run("SET GLOBAL general_log = OFF")
            self.run("TRUNCATE mysql.general_log")

    def logged(self, statement: str) -> int:
        # The log has this very question too, with its pattern in quotation
        # marks.
        question = (
            "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE %s AND"
            " argument NOT LIKE %s"
        )
        return int(
            self.run(question, (f"%{statement}%", "%general_log%"))[0][0]
        )

    def insert(self, table: str, **values: object) -> None:
        marks = ", ".join(["%s"] * len(values))
        statement = f"INSERT INTO {self.token}_{table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608 - our names
        self.run(statement, [*values.values()])

    def run(
        self, statement: str, values: Sequence[object] = ()
    ) -> tuple[tuple[Any, ...], ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values)
            return tuple(cursor.fetchall())


@contextmanager
def databases(url: str, *, alone: bool = True) -> Iterator[Databases]:
    """Have databases of our own in this MariaDB.

    :param alone: have the MariaDB, and the RabbitMQ beside it, for ourselves;
        others that want to be alone wait
    """
    parts = urlsplit(url)
    assert parts.hostname
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        password=parts.password or "",
        autocommit=True,
    )
    with closing(connection):
        ours = Databases(url, connection)
        assert (
            not alone
            or ours.run("SELECT GET_LOCK(%s, %s)", (_LOCK, str(_OTHERS_NEED)))[
                0
            ][0]
            == 1
        )
        try:
            yield ours
        finally:
            ours.drop_all()
