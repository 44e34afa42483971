"""`dagster dev` on our workspace: started, waited for, and ended with everything it started."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.dagster_api import DagsterApi
from demo.errors import DemoError
from demo.processes import kill_all

WORKSPACE = Path(__file__).resolve().parent.parent / "workspace.yaml"

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for minutes on two cores: half their work would be making code fast that soon ends."""

READY_S = 120.0
"""How long Dagster may take until it can launch a run."""

END_S = 20.0
"""How long Dagster may take to end once it was asked to; after that it is killed."""


@dataclass(frozen=True, slots=True)
class DagsterDev:
    """A running `dagster dev`: the leader of a session of its own, so that all it starts can be found and ended."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    @property
    def session(self) -> int:
        return self.process.pid

    @property
    def api(self) -> DagsterApi:
        return DagsterApi(self.url)

    def wait_until_ready(self) -> None:
        """Until the UI answers, the code location is loaded and the daemon is at work. Raises DemoError."""
        deadline = time.monotonic() + READY_S
        while not self.api.ready():
            if self.process.poll() is not None:
                raise DemoError(f"dagster dev ended at once. exit_status={self.process.returncode}")
            if time.monotonic() > deadline:
                raise DemoError(f"dagster dev is not ready. seconds={READY_S:.0f}")
            time.sleep(0.25)

    def end(self) -> None:
        """Ask it to end, then kill what is left: afterwards no process of its session lives."""
        try:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            kill_all(self.session)
            self.process.wait()

    def last_words(self, lines: int = 30) -> str:
        """The end of its log."""
        with self.log.open(errors="replace") as log:
            return "".join(deque(log, lines))


def start(
    home: Path, log: Path, environment: Mapping[str, str], keep_open: Sequence[int] = (), workspace: Path = WORKSPACE
) -> DagsterDev:
    """Start `dagster dev` on a free port. DAGSTER_HOME is `home`; the file descriptors `keep_open` stay open in it."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("dagster.yaml"), home / "dagster.yaml")
    port = _free_port()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dagster", "dev"),
                *("--workspace", str(workspace), "--host", "127.0.0.1", "--port", str(port)),
            ],
            env={**os.environ, "JAVA_TOOL_OPTIONS": JAVA, **environment, "DAGSTER_HOME": str(home)},
            cwd=WORKSPACE.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=keep_open,
            # A script that starts us with & makes us ignore SIGINT; dagster dev would inherit that and never end.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 (one thread)
        )
    return DagsterDev(process, f"http://127.0.0.1:{port}", log)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
