"""`subscribers` and `unsubscribe`, for people and for programs."""

import json

from click.testing import CliRunner

from dagster_ckpt.cli import main
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.subscriber import Subscriber
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.retention_refs.subscribers import subscribe
from dagster_ckpt.storage.stores.address import open_store
from dagster_ckpt.storage.stores.folder import folder_store
from tests.unit.cli.conftest import Command


def test_a_subscriber_is_listed_until_it_is_removed(command: Command, url: str) -> None:
    assert command("subscribers", "departures").stdout == "No stream reads departures.\n"
    chain = ManifestChain(folder_store(open_store(url), "departures"), SystemClock())
    subscribe(chain, Subscriber("late [all]", StreamUuid("e" * 32), Epoch(1)))
    header, line = command("subscribers", "departures").stdout.splitlines()
    assert header.split() == ["read", "by", "up", "to", "epoch", "epochs", "behind", "log", "kept", "from"]
    assert line.split() == [*["late", "[all]", "1", "1", "1"], *["its", "stream", "is", "not", "in", "the", "store"]]
    [found] = json.loads(command("subscribers", "departures", "--json").stdout)["subscribers"]
    assert (found["stream"], found["read"], found["gone"]) == ("late [all]", 1, True)
    no = CliRunner().invoke(main, ["--store", url, "unsubscribe", "departures", "late [all]"], input="n\n")
    assert (no.exit_code, "If late [all] runs again, it may need a backfill." in no.stderr) == (1, True)
    assert "is no longer kept for late [all]" in command("unsubscribe", "departures", "late [all]", "--yes").stdout
    assert json.loads(command("subscribers", "departures", "--json").stdout)["subscribers"] == []
    for yes in ([], ["--yes"]):
        wrong = command("unsubscribe", "departures", "late", *yes)
        assert wrong.exit_code == 1
        assert "no such stream subscribes" in wrong.stderr
        assert "[y/N]" not in wrong.stderr
