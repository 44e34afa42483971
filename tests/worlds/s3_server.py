"""A server that speaks S3, for as long as the tests run: moto's, or a real one where `make test-s3` says so."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import s3fs

from dagster_ckpt.storage.stores.address import StoreAddress

REAL = "DAGSTER_CKPT_TEST_S3"
"""The environment variable that names the program of a real server (versitygw)."""

BUCKET = "checkpoints"
KEY, SECRET = "a-test-key", "a-test-secret"


@dataclass(frozen=True)
class S3Server:
    """Where it listens. It has one bucket."""

    port: int
    host: str = "127.0.0.1"

    @property
    def options(self) -> dict[str, object]:
        return {"key": KEY, "secret": SECRET, "endpoint_url": f"http://{self.host}:{self.port}"}

    def empty(self) -> StoreAddress:
        """A store that nobody has used."""
        return self.at(uuid4().hex)

    def at(self, folder: str) -> StoreAddress:
        """The store of a name."""
        return StoreAddress(f"s3://{BUCKET}/tests/{folder}", self.options)


@contextmanager
def running(folder: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
    """The server; a real one keeps its objects in `folder`, and listens at any address of this host."""
    program = os.environ.get(REAL)
    with _moto() if program is None else _real(Path(program), folder, host) as server:
        files = s3fs.S3FileSystem(**server.options, skip_instance_cache=True)
        files.call_s3("create_bucket", Bucket=BUCKET)
        yield server


@contextmanager
def _moto() -> Iterator[S3Server]:
    # Its own session: a Ctrl-C meant for the tests must not end it under them.
    command = [sys.executable, "-m", "tests.worlds.moto_process"]
    # Small pages, so that every list of more than a few names takes several.
    environment = {**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": "5"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            yield S3Server(int(process.stdout.readline()))
        finally:
            process.terminate()


@contextmanager
def _real(program: Path, folder: Path, host: str) -> Iterator[S3Server]:
    with socket.socket() as free:
        free.bind((host, 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    (folder / "objects").mkdir()
    with (folder / "log").open("wb") as log:
        command: list[str | Path] = [program, "--port", f"{host}:{port}", "posix", folder / "objects"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        _wait(host, port)
        yield S3Server(port, host)
    finally:
        process.terminate()
        process.wait(10)


def _wait(host: str, port: int) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < end, "the server did not begin to listen"
            time.sleep(0.05)
