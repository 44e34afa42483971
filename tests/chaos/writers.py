"""Writers of one stream, each a process with a Spark of its own; the first one brought into the middle of an epoch."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from dagster_ckpt import CheckpointStore
from dagster_ckpt.ids import Term
from tests.chaos.services import ROOT
from tests.chaos.world import Feed, until

STREAM = "contested"


def writer(
    place: Path, name: str, home: str, config: Mapping[str, object], event_interval: str = "1s"
) -> subprocess.Popen[bytes]:
    """A process that materializes the stream with this run config; `home` is the folder of its Dagster instance."""
    folder = place / home
    folder.mkdir(exist_ok=True)
    (folder / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with (place / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.contender", STREAM, json.dumps(config)],
            cwd=ROOT,
            env={
                **os.environ,
                "DAGSTER_HOME": str(folder),
                "DAGSTER_CKPT_TEST_PLACE": str(place),
                "DAGSTER_CKPT_TEST_EVENT_INTERVAL": event_interval,
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def bring_into_the_middle(feed: Feed) -> None:
    """Wait until the only writer stands in the middle of an epoch, before a closed gate."""
    until("the first writer works its first files", feed.is_through)
    feed.close_gate()
    feed.drop(2)
    until("the first writer is in the middle of an epoch", lambda: feed.inside)


def term(place: Path) -> Term:
    """The stream's newest term."""
    return CheckpointStore((place / "checkpoints").as_uri()).stream(STREAM).manifest().term
