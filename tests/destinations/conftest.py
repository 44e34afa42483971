"""Destinations on real servers: run by `make test-destinations`, which installs them."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import postgres
from tests.servers.processes import HOST

collect_ignore_glob = [] if os.environ.get("DAGSTER_CKPT_TEST_DESTINATIONS") else ["test_*.py"]


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    # Not in pytest's folder: the server runs as another user, who could not go there.
    folder = Path(tempfile.mkdtemp(prefix="dagster-ckpt-postgres-"))
    folder.chmod(0o755)
    try:
        with postgres(folder / "server", "shop", "of the tests", "shop") as port:
            yield f"postgresql://shop:of%20the%20tests@{HOST}:{port}/shop"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
