"""Emulators of Google's and Azure's storage on this machine's loopback. `scripts/test_stores.sh` installs them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.servers.processes import HOST, Server, free_port, listens, until

PROGRAMS = os.environ.get("DAGSTER_CKPT_TEST_STORES", "")
"""The folder that has them; empty where they were not installed."""

BUCKET = "checkpoints"

_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account of every Azurite, as its documentation has it."""


@contextmanager
def fake_gcs(folder: Path) -> Iterator[dict[str, object]]:
    """fake-gcs-server with a bucket: yields the storage options of its stores."""
    port = free_port()
    address = f"http://{HOST}:{port}"
    command = [f"{PROGRAMS}/fake-gcs-server", "-backend", "memory", "-scheme", "http", "-host", HOST]
    command += ["-port", str(port), "-external-url", address, "-public-host", f"{HOST}:{port}", "-log-level", "error"]
    server = Server(command, folder / "log", {}, folder)
    try:
        until("fake-gcs-server listens", lambda: listens(port), 30)
        reply = requests.post(f"{address}/storage/v1/b?project=tests", json={"name": BUCKET}, timeout=10)
        reply.raise_for_status()
        yield {"endpoint_url": address, "token": "anon", "project": "tests"}
    finally:
        server.kill()


@contextmanager
def azurite(folder: Path) -> Iterator[dict[str, object]]:
    """Azurite with a container: yields the storage options of its stores."""
    from azure.storage.blob import BlobServiceClient  # not in .venv until the tests of stores have put it there

    port = free_port()
    command = ["node", f"{PROGRAMS}/node_modules/azurite/dist/src/blob/main.js", "--inMemoryPersistence", "--silent"]
    command += ["--disableTelemetry", "--skipApiVersionCheck", "--blobHost", HOST, "--blobPort", str(port)]
    server = Server(command, folder / "log", {}, folder)
    address = f"http://{HOST}:{port}/{_ACCOUNT}"
    connection = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};BlobEndpoint={address};"
    try:
        until("Azurite listens", lambda: listens(port), 60)
        with BlobServiceClient.from_connection_string(connection) as client:
            client.create_container(BUCKET).close()
        yield {"connection_string": connection}
    finally:
        server.kill()
