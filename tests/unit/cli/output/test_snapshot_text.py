"""`snapshot`, for people and for programs."""

import json
from pathlib import Path

from click.testing import CliRunner

from dagster_ckpt.cli import main
from tests.unit.history.reading_streams import MadeStreams


def test_it_lists_the_epochs_of_the_cut(tmp_path: Path) -> None:
    streams = MadeStreams(tmp_path)
    a = streams.source("a", epochs=1)
    b, new = streams.reader("b", a), streams.reader("new", a)
    b.read(a)
    streams.commit(a)
    new.read(a, part=1, parts=2)
    streams.close()

    def said(*words: str) -> str:
        return CliRunner().invoke(main, ["--store", tmp_path.as_uri(), "snapshot", *words]).output

    found = json.loads(said("a", "b", "new", "--json"))
    assert [(each["stream"], each["epoch"], each["current"]) for each in found["streams"]] == [
        ("a", 2, False),
        ("b", 2, True),
    ]
    assert (found["consistency"], found["left_out"]) == ("aligned", ["new"])
    latest = json.loads(said("a", "b", "--consistency", "latest", "--json"))
    assert [each["epoch"] for each in latest["streams"]] == [3, 2]
    header, first, second, left_out, note = said("a", "b", "new").splitlines()
    assert header.split()[:2] == ["stream", "epoch"]
    assert first.split()[:2] == ["a", "2"]
    assert second.split()[:2] == ["b", "2"]
    assert "new is left out" in left_out
    assert "consumed exactly" in note
