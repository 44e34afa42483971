"""Times a newcomer's way from `pip install` of the wheel to the first live epochs of `dagster-ckpt init`'s project.

Run by `make first-epoch`. A fresh virtual environment, the wheel of this checkout and dagster-webserver with the pinned
versions, then what the README says: init, `dagster dev`, and wait. Fails above SECONDS_MAX. What pip has in its cache
is not downloaded; the first run on a machine measures the downloads too, so run it twice.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from dagster_ckpt import CheckpointStore, InvalidPipelineError
from demo.dagster_api import DagsterApi
from demo.errors import DemoError
from demo.processes import kill_all

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".work" / "first-epoch"
STREAMS = ("delay_by_carrier", "late_carriers")
SECONDS_MAX = 300.0
END_S = 30.0
"""How long `dagster dev` may take to end after SIGINT."""


class TooSlowError(Exception):
    """The way takes longer than it may, or a step of it failed."""


class Stages:
    """Seconds of each stage, printed as it ends."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._stage_s = self._began_s

    @property
    def seconds(self) -> float:
        """Since the first stage began."""
        return time.monotonic() - self._began_s

    @property
    def left_s(self) -> float:
        return SECONDS_MAX - self.seconds

    def done(self, stage: str) -> None:
        now_s = time.monotonic()
        print(f"{now_s - self._stage_s:7.1f} s  {stage}", flush=True)
        self._stage_s = now_s

    def run(self, stage: str, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        """Run a command as one stage. Raises `TooSlowError` with the end of its output where it fails."""
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=dict(environment),
                timeout=max(1.0, self.left_s),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TooSlowError(f"{stage} was not done after {self.seconds:.0f} s in all") from None
        if done.returncode:
            raise TooSlowError(f"{stage} failed:\n{done.stdout[-3_000:]}")
        self.done(stage)

    def wait(self, stage: str, happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        """Wait for it as one stage, while the process lives."""
        while not happened():
            if process.poll() is not None:
                raise TooSlowError(f"dagster dev ended. exit_status={process.returncode}")
            if self.left_s <= 0:
                raise TooSlowError(f"waited in vain: {stage}. seconds={self.seconds:.0f}")
            time.sleep(0.25)
        self.done(stage)


def main() -> int:
    """0 where both streams were live in time."""
    # A plain kill goes the way of Ctrl-C, past all that has to be ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    WORK.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(dir=WORK))
    try:
        (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(place), versions=["standard"])
        stages = Stages()
        _go(stages, place, wheel)
    except TooSlowError as error:
        print(f"failed: {error}\nkept to look at: {place.relative_to(ROOT)}", file=sys.stderr)
        return 1
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    shutil.rmtree(place, ignore_errors=True)
    return 0


def _go(stages: Stages, place: Path, wheel: str) -> None:
    programs, shop = place / "venv" / "bin", place / "shop"
    environment = _environment(programs)
    stages.run("python -m venv", [sys.executable, "-m", "venv", str(place / "venv")], place, environment)
    packages = ["--constraint", str(ROOT / "constraints.txt"), wheel, "dagster-webserver"]
    install = [str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", *packages]
    stages.run("pip install of the wheel and dagster-webserver", install, place, environment)
    stages.run("dagster-ckpt init shop", [str(programs / "dagster-ckpt"), "init", "shop"], place, environment)
    port = _free_port()
    api = DagsterApi(f"http://127.0.0.1:{port}")
    command = [str(programs / "dagster"), "dev", "--host", "127.0.0.1", "--port", str(port)]
    with _running(command, shop, environment, place / "dagster.log") as dagster:
        stages.wait("dagster dev has loaded the project", lambda: _is_ready(api), dagster)
        store = CheckpointStore((shop / "checkpoints").as_uri())
        for stream in STREAMS:
            stages.wait(f"{stream} is live, with an epoch", lambda stream=stream: _is_live(store, stream), dagster)  # type: ignore[misc]
        seconds = stages.seconds
        epochs = {stream: store.stream(stream).latest().epoch for stream in STREAMS}
    print(f"{seconds:7.1f} s  in all, of at most {SECONDS_MAX:.0f}; newest epochs: {epochs}")
    if seconds > SECONDS_MAX:
        raise TooSlowError(f"that is too slow. seconds={seconds:.0f}")


def _environment(programs: Path) -> dict[str, str]:
    """That of a person who has activated the environment: nothing of this checkout is on the path."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "DAGSTER_HOME", "SPARK_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    here = str(Path(sys.executable).parent)
    path = [entry for entry in kept.get("PATH", "").split(os.pathsep) if entry and entry != here]
    return {**kept, "PATH": os.pathsep.join([str(programs), *path])}


@contextmanager
def _running(
    command: list[str], folder: Path, environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """`dagster dev` in a session of its own. In the end it is asked to end, and what is left is killed."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # What is started with & ignores SIGINT, and Dagster's way to end is SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 (one thread)
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            print(f"dagster dev had not ended {END_S:.0f} s after SIGINT, and was killed", file=sys.stderr)
        finally:
            kill_all(process.pid)
            process.wait()


def _is_ready(api: DagsterApi) -> bool:
    try:
        return api.ready()
    except DemoError as error:
        raise TooSlowError(str(error)) from error


def _is_live(store: CheckpointStore, stream: str) -> bool:
    """Whether the stream has an epoch, and a writer whose lease beats."""
    try:
        history = store.stream(stream)
        writer = history.writer()
    except InvalidPipelineError:
        return False  # not opened yet
    return history.latest().epoch > 0 and writer.is_known and not writer.ended


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
