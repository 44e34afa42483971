"""PostgreSQL whose replies are lost, that is killed and started again, and that is dumped and restored."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi

from dagster_ckpt.delivery.destination import DestinationUnavailableError, Transaction
from dagster_ckpt.destinations import Postgres
from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.protocol.redaction import shown_messages
from dagster_ckpt.testing.destination_suite import UPSERTED, Row, changed
from tests.servers.lossy_proxy import lossy_proxy
from tests.servers.postgres import Database
from tests.servers.processes import HOST
from tests.unit.delivery.delivering import Delivering
from tests.unit.delivery.delivery_runs import deliver_with_losses
from tests.unit.history.made_streams import departures


@pytest.fixture
def database() -> Iterator[Database]:
    folder = Path(tempfile.mkdtemp(prefix="dagster-ckpt-postgres-"))
    folder.chmod(0o755)
    server = Database(folder / "server", "shop", "of the tests", "shop")
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def rows_of(url: str) -> list[Row]:
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT carrier, flights FROM delays")
        return [(carrier, flights) for carrier, flights in cursor.fetchall()]


def table_of(delivering: Delivering) -> list[Row]:
    rows: list[Any] = delivering.table()
    return [(row[0], row[1]) for row in rows]


@pytest.mark.parametrize("reply", [False, True], ids=["never arrives", "reply lost"])
def test_a_commit_without_a_reply_is_made_once(database: Database, tmp_path: Path, *, reply: bool) -> None:
    delivering = Delivering(tmp_path, epochs_max=1)
    with lossy_proxy(database.port) as proxy:
        to = Postgres(database.url_at(proxy.port), "delays", lock_timeout_s=5)
        # Settings, tables, fence, and two transactions with rows.
        assert deliver_with_losses(delivering, to, proxy, b"COMMIT", lambda: rows_of(database.url), reply=reply) >= 5


def test_a_password_with_special_characters_needs_no_escapes_and_is_not_shown(database: Database) -> None:
    for number, cut in enumerate("#?/[@ :%'"):
        user, secret = f"guest{number}", f"hunter{cut}two@hunter{cut}2"
        with dbapi.connect(database.url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE ROLE {} LOGIN SUPERUSER PASSWORD '{}'".format(user, secret.replace("'", "''")))
            connection.commit()
        where = f"{HOST}:{database.port}/shop"
        with Postgres(f"postgresql://{user}:{secret}@{where}", "delays").open("one", UPSERTED) as session:
            assert session.position is None
        for wrong in (f"{secret}-@{where}", f"{secret}@{HOST}:1/shop", f"{secret}@no.such.host/shop"):
            with pytest.raises(CheckpointError) as refused:
                Postgres(f"postgresql://{user}:{wrong}", "delays").open("one", UPSERTED)
            assert not [message for message in shown_messages(refused.value) if "hunter" in message]


def test_a_killed_server_leaves_one_of_the_two_positions(database: Database) -> None:
    to = Postgres(database.url, "delays")
    with to.open("one", UPSERTED) as session:
        session.apply(Transaction(None, "1", changed(("insert", ("UA", 1)))))

        def killed_amidst() -> Iterator[object]:
            yield from changed(("insert", ("AA", 1)))
            database.kill()

        with pytest.raises(DestinationUnavailableError):
            session.apply(Transaction("1", "2", killed_amidst()))
    with pytest.raises(DestinationUnavailableError):
        to.open("one", UPSERTED)
    database.start()
    with to.open("one", UPSERTED) as session:
        assert session.position == "1"
        session.apply(Transaction("1", "2", changed(("insert", ("AA", 1)))))
    assert sorted(rows_of(database.url)) == [("AA", 1), ("UA", 1)]


def test_a_delivery_goes_on_in_a_database_restored_from_a_dump(database: Database, tmp_path: Path) -> None:
    delivering = Delivering(tmp_path)
    delivering.stream.commit(departures({"UA": [1.0], "AA": [2.0], None: [1.0]}))
    delivering.deliver(Postgres(database.url, "delays"))
    database.copy("restored")
    # What was delivered after the dump is missing there.
    delivering.stream.commit(departures({"UA": [1.0], "DL": [2.0]}))
    delivering.deliver(Postgres(database.url, "delays"))
    delivering.stream.commit(departures({None: [1.0], "B6": [2.0]}))
    restored = database.url_at(database.port, "restored")
    delivering.deliver(Postgres(restored, "delays"))
    assert sorted(rows_of(restored), key=repr) == sorted(table_of(delivering), key=repr)
