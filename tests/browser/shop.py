"""A Dagster as people have it: `dagster dev` on the project of `dagster-ckpt init`, and one stream that can break."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

from dagster_ckpt import CheckpointStore
from dagster_ckpt.cli.project import HOME, create
from demo import dagster_dev, processes
from demo.dagster_api import DagsterApi
from demo.dagster_dev import DagsterDev

Found = TypeVar("Found")

CHECKOUT = Path(__file__).parents[2]
REFUNDS = Path(__file__).with_name("refunds_location.py")
CARRIERS = ("AA", "B6", "DL", "UA", "WN")
FEED_S = 6.0
WAIT_S = 240.0
"""Spark, Dagster and Chromium share two cores, perhaps with others."""


def until(what: str, look: Callable[[], Found | None], seconds: float = WAIT_S) -> Found:
    """What `look` finds, as soon as it finds something."""
    end_s = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end_s, f"waited in vain: {what}"
        time.sleep(0.5)
    return found


@dataclass(frozen=True)
class Event:
    """An event of a stream: its metadata, and the page that shows it."""

    metadata: Mapping[str, dg.MetadataValue[Any]]
    page: str
    is_observation: bool


@dataclass
class Shop:
    """The project in its folder, and its running Dagster."""

    folder: Path
    dev: DagsterDev
    _drops: int = 0
    _fed: threading.Event = field(default_factory=threading.Event)

    @property
    def api(self) -> DagsterApi:
        return self.dev.api

    @property
    def url(self) -> str:
        return self.dev.url

    @property
    def store(self) -> str:
        return (self.folder / "checkpoints").as_uri()

    @cached_property
    def instance(self) -> dg.DagsterInstance:
        return dg.DagsterInstance.from_config(str(self.folder / HOME))

    def epoch(self, stream: str) -> int:
        """The newest epoch of a stream; 0 before the first."""
        store = CheckpointStore(self.store)
        return int(store.stream(stream).manifest().epoch) if stream in store.streams() else 0

    def runs(self, stream: str) -> list[dg.RunRecord]:
        """The Dagster runs of a stream by itself, newest first."""
        return list(self.instance.get_run_records(dg.RunsFilter(tags={"dagster_ckpt/stream": stream})))

    def live_run(self, stream: str) -> str:
        """The id of the run that is at work on the stream."""
        started = dg.DagsterRunStatus.STARTED
        [run] = [each.dagster_run for each in self.runs(stream) if each.dagster_run.status is started]
        return run.run_id

    def event(self, stream: str, label: str) -> Event | None:
        """The newest event of a stream whose metadata has this label."""
        key = dg.AssetKey(stream)
        observed = self.instance.fetch_observations(key, limit=100).records
        materialized = self.instance.fetch_materializations(key, limit=100).records
        for record in sorted([*observed, *materialized], key=lambda each: each.timestamp, reverse=True):
            found = record.asset_observation or record.asset_materialization
            if found is not None and label in found.metadata:
                page = f"/assets/{stream}?view=events&time={int(record.timestamp * 1000)}"
                return Event(found.metadata, page, isinstance(found, dg.AssetObservation))
        return None

    def check(self, stream: str, name: str) -> dg.AssetCheckEvaluation | None:
        """The newest evaluation of a check."""
        record = self.instance.get_latest_asset_check_evaluation_record(dg.AssetCheckKey(dg.AssetKey(stream), name))
        found = None if record is None else record.evaluation
        return found if isinstance(found, dg.AssetCheckEvaluation) else None

    def drop_departures(self) -> None:
        """One more file for `delay_by_carrier`."""
        rows = 600 + 37 * (self._drops % 17)
        table = pa.table(
            {
                "carrier": [CARRIERS[row % len(CARRIERS)] for row in range(rows)],
                "dep_delay": [float(row * 7 % 31) for row in range(rows)],
            }
        )
        file = self.folder / "data" / "departures" / f"{time.time_ns()}.parquet"
        pq.write_table(table, file.with_name(f"_{file.name}"))
        file.with_name(f"_{file.name}").rename(file)
        self._drops += 1

    def drop_refunds(self, *refunds: tuple[str, str]) -> None:
        """One more file for `refunds_by_shop`."""
        folder = self.folder / "data" / "refunds"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{time.time_ns()}.json"
        lines = [json.dumps({"shop": shop, "amount": amount}) for shop, amount in refunds]
        file.with_name(f"_{file.name}").write_text("\n".join(lines))
        file.with_name(f"_{file.name}").rename(file)

    def feed(self) -> None:
        """Drop departures from now on, beside the tests, until `stop_feeding`."""

        def drop() -> None:
            while not self._fed.wait(FEED_S):
                self.drop_departures()

        threading.Thread(target=drop, daemon=True).start()

    def stop_feeding(self) -> None:
        self._fed.set()

    def command(self, *arguments: str) -> str:
        """The output of `dagster-ckpt` on the project's store."""
        command = [sys.executable, "-m", "dagster_ckpt.cli", *arguments, "--store", self.store]
        return subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout

    def kill_run(self, run: str) -> None:
        """SIGKILL to the worker process of a Dagster run."""
        worker = self.api.worker(run)
        assert worker is not None
        processes.kill(worker, self.dev.session)

    def end(self) -> None:
        self.stop_feeding()
        self.instance.dispose()
        self.dev.end()


def open_shop(folder: Path) -> Shop:
    """Make the project in a new folder, start Dagster, and wait until both of its streams are at work."""
    create(folder)
    workspace, log = folder / "workspace.yaml", folder / "dagster.log"
    location = "  - python_file: {{relative_path: {}, working_directory: {}, location_name: {}}}\n"
    workspace.write_text(
        "load_from:\n"
        + location.format(folder / "definitions.py", folder, "shop")
        + location.format(REFUNDS, CHECKOUT, "refunds")
    )
    shop = Shop(folder, dagster_dev.start(folder / HOME, log, {"SHOP": str(folder)}, workspace=workspace))
    try:
        shop.dev.wait_until_ready()
        for stream in ("delay_by_carrier", "late_carriers"):
            until(f"{stream} in Dagster", lambda stream=stream: shop.event(stream, "rows_in"))  # type: ignore[misc]
    except BaseException as error:
        error.add_note(shop.dev.last_words(100))
        shop.end()
        raise
    return shop
