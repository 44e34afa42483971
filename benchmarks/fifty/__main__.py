"""What fifty streams in one code location cost Dagster, without any Spark: loading, the sensor, the database.

    make fifty      # or: python -m benchmarks.fifty [--streams 50] [--seconds 120]

A real code server and a real `dagster-daemon` on SQLite, with their own settings. The streams are played: their Dagster
runs, manifests, leases and events are real, their rows are not, and one process plays all of them. Growth is measured
for `--seconds` in each state and scaled to an hour. Nothing else should run on the machine.
"""

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import click
import dagster as dg
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.scheduler.instigation import InstigatorTick, TickStatus
from dagster._grpc.client import DagsterGrpcClient

from benchmarks.fifty.names import STREAMS_VARIABLE, URL_VARIABLE, name_of
from benchmarks.fifty.played_stream import PlayedStream
from demo.processes import kill_all, members

ROOT = Path(__file__).resolve().parents[2]
LOCATION = Path(__file__).with_name("location.py")
READY_S = 120.0
COMMIT_S = 10.0
MEASURED_S = 30.0
"""How often a stream commits by default, and measures its lag."""

LOOK_S = 1.0
"""How often a quiet stream looks whether an event is due."""

SETTLE_S = 60.0
"""Until what the change of states has caused is over: the last events, the sensor's reports."""

LOADS = 3
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What one state of the streams cost while it was measured."""

    state: str
    seconds: float
    tick_ms: Sequence[float]
    cpu_s: float
    grown: dict[str, int]

    @property
    def megabytes_an_hour(self) -> dict[str, float]:
        """Growth of Dagster's database by its parts."""
        return {part: size / self.seconds * 3_600 / 1e6 for part, size in self.grown.items()}


@click.command()
@click.option("--streams", default=50, show_default=True)
@click.option("--seconds", default=120, show_default=True, help="How long each state is measured.")
def main(streams: int, seconds: int) -> None:
    """Measure, and print the tables of docs/benchmarks.md."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # past all that has to be ended
    place = Path(tempfile.mkdtemp(prefix="fifty-", dir=os.environ.get("TMPDIR")))
    try:
        loads = {
            count: [_load(place / f"load-{count}-{turn}", count) for turn in range(LOADS)] for count in (1, streams)
        }
        costs = _measure(place / "work", streams, seconds)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"\ncode server until it answers, median of {LOADS}:")
    for count, took in loads.items():
        print(f"  {count:3} streams: {median(took):.2f} s   (all: {', '.join(f'{each:.2f}' for each in took)})")
    for cost in costs:
        _print(cost)


def _print(cost: Cost) -> None:
    ticks = sorted(cost.tick_ms)
    p95 = ticks[min(len(ticks) - 1, round(0.95 * len(ticks)))]
    parts = ", ".join(f"{part} {size:.2f}" for part, size in cost.megabytes_an_hour.items())
    print(
        f"\n{cost.state}: {len(ticks)} ticks in {cost.seconds:.0f} s\n"
        f"  a tick: median {median(ticks):.0f} ms, p95 {p95:.0f} ms, most {ticks[-1]:.0f} ms\n"
        f"  code server and daemon: {cost.cpu_s / cost.seconds * 60:.1f} s of processor time a minute\n"
        f"  database: {sum(cost.megabytes_an_hour.values()):.2f} MB an hour ({parts})"
    )


def _load(place: Path, streams: int) -> float:
    """Seconds from the start of a code server until it answers with its repositories."""
    (place / "home").mkdir(parents=True)
    began_s = time.monotonic()
    with _code_server(place, streams) as server:
        _until(server.answers)
        return time.monotonic() - began_s


def _measure(place: Path, streams: int, seconds: float) -> list[Cost]:
    home = place / "home"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\nnux: {enabled: false}\n")
    os.environ.update({STREAMS_VARIABLE: str(streams), URL_VARIABLE: _url(place)})
    from benchmarks.fifty.location import defs  # here: its environment is set now

    with dg.DagsterInstance.from_config(str(home)) as instance, _code_server(place, streams) as server:
        _until(server.answers)
        with _daemon(place, streams, server.port) as daemon:
            gauge = _Gauge(instance, home, (server.session, daemon))

            def begun() -> list[PlayedStream]:
                names = [name_of(number) for number in range(streams)]
                jobs = [defs.resolve_job_def(f"{name}_job") for name in names]
                return [PlayedStream(instance, job, name, _url(place)) for name, job in zip(names, jobs, strict=True)]

            played = begun()
            for stream in played:
                stream.commit()
                stream.end()
            _until(lambda: bool(gauge.ticks(0.0)))
            ended = gauge.cost("all ended", time.sleep, seconds, settle_s=15.0)
            played = begun()
            committing = gauge.cost("all live, an epoch each 10 s", partial(_play, played, COMMIT_S), seconds)
            quiet = gauge.cost("all live and quiet", partial(_play, played, None), seconds)
            runs = len(instance.get_run_records())
            if runs != 2 * streams:
                raise RuntimeError(f"the sensor has launched runs, so a stream was not live. runs={runs}")
            for stream in played:
                stream.end()
    return [ended, committing, quiet]


def _play(streams: Sequence[PlayedStream], commit_s: float | None, seconds: float) -> None:
    """Let the streams work for so long: each commits every `commit_s`, not all at once; None: they are quiet."""
    end_s = time.monotonic() + seconds
    due_s = [time.monotonic() + (commit_s or 0) * number / len(streams) for number in range(len(streams))]
    measured_s = 0.0
    while (now_s := time.monotonic()) < end_s:
        if now_s - measured_s >= MEASURED_S:
            measured_s = now_s
            for stream in streams:
                stream.measured()
        for number, stream in enumerate(streams):
            if commit_s is not None and now_s >= due_s[number]:
                due_s[number] += commit_s
                stream.commit()
            stream.idle()
        time.sleep(max(0.0, now_s + LOOK_S - time.monotonic()))


class _Gauge:
    """Reads what Dagster has stored and used. `sessions` are those of its processes."""

    def __init__(self, instance: dg.DagsterInstance, home: Path, sessions: tuple[int, ...]) -> None:
        self._instance = instance
        self._home = home
        self._sessions = sessions

    def ticks(self, after: float) -> Sequence[InstigatorTick]:
        """The sensor's finished ticks since that time. Raises RuntimeError where one failed or launched a run."""
        found = [
            tick
            for state in self._instance.all_instigator_state()
            for tick in self._instance.get_ticks(state.instigator_origin_id, state.selector_id, after=after)
        ]
        wrong = {tick.status for tick in found} - {TickStatus.SKIPPED, TickStatus.STARTED}
        if wrong:
            raise RuntimeError(f"the sensor's ticks must do nothing. statuses={wrong}")
        return [tick for tick in found if tick.end_timestamp is not None]

    def cost(self, state: str, play: Callable[[float], None], seconds: float, settle_s: float = SETTLE_S) -> Cost:
        """Let it settle, then measure for so long."""
        play(settle_s)
        sizes, cpu_s, began, began_s = self._sizes(), self._cpu_s(), time.time(), time.monotonic()
        play(seconds)
        took_s, used_s, now = time.monotonic() - began_s, self._cpu_s() - cpu_s, self._sizes()
        times_ms = [((tick.end_timestamp or 0.0) - tick.timestamp) * 1_000 for tick in self.ticks(began)]
        return Cost(state, took_s, times_ms, used_s, {part: now[part] - sizes[part] for part in now})

    def _sizes(self) -> dict[str, int]:
        """Bytes of Dagster's SQLite files in use, by what they are for: what is in a write-ahead log counts too."""
        sizes = {"events": 0, "ticks": 0, "runs": 0}
        for file in self._home.rglob("*.db"):
            part = "ticks" if "schedules" in file.parts else "runs" if file.name == "runs.db" else "events"
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
                [used] = database.execute(
                    "SELECT (c.page_count - f.freelist_count) * s.page_size "
                    "FROM pragma_page_count c, pragma_freelist_count f, pragma_page_size s"
                ).fetchone()
            sizes[part] += used
        return sizes

    def _cpu_s(self) -> float:
        pids = [pid for session in self._sessions for pid in members(session)]
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        return sum(int(each[11]) + int(each[12]) for each in fields) / _TICKS_PER_SECOND


@dataclass(frozen=True)
class _CodeServer:
    port: int
    session: int

    def answers(self) -> bool:
        """Whether it has loaded the location."""
        try:
            return bool(DagsterGrpcClient(port=self.port, host="127.0.0.1").list_repositories())
        except DagsterUserCodeUnreachableError:
            return False


@contextmanager
def _code_server(place: Path, streams: int) -> Iterator[_CodeServer]:
    port = _free_port()
    server = ("-m", "dagster", "api", "grpc", "--host", "127.0.0.1", "--port", str(port))
    location = ("--python-file", str(LOCATION), "--working-directory", str(ROOT), "--location-name", "fifty")
    with _running(place, streams, "code_server", *server, *location) as session:
        yield _CodeServer(port, session)


@contextmanager
def _daemon(place: Path, streams: int, port: int) -> Iterator[int]:
    """The session of a daemon that works."""
    workspace = place / "workspace.yaml"
    workspace.write_text(f"load_from:\n  - grpc_server: {{host: 127.0.0.1, port: {port}, location_name: fifty}}\n")
    program = str(Path(sys.executable).with_name("dagster-daemon"))
    with _running(place, streams, "daemon", program, "run", "--workspace", str(workspace)) as session:
        yield session


@contextmanager
def _running(place: Path, streams: int, name: str, *command: str) -> Iterator[int]:
    """A Python process in a session of its own, whose number this is; nothing of it is left in the end."""
    there = {"DAGSTER_HOME": str(place / "home"), STREAMS_VARIABLE: str(streams), URL_VARIABLE: _url(place)}
    with (place / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env={**os.environ, **there},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        kill_all(process.pid)
        process.wait()


def _url(place: Path) -> str:
    return (place / "checkpoints").as_uri()


def _until(happened: Callable[[], bool]) -> None:
    end_s = time.monotonic() + READY_S
    while not happened():
        if time.monotonic() > end_s:
            raise RuntimeError(f"Dagster is not ready. seconds={READY_S:.0f}")
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
