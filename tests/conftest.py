"""What all tests share: a test below a folder that is named like a marker has that marker."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from packaging.version import Version

from dagster_ckpt.storage.leases.heartbeat import LeaseHeartbeat
from tests.worlds.examples import examples

if TYPE_CHECKING:
    from tests.worlds.s3_server import S3Server

TESTS = Path(__file__).parent
SPARK = Version(version("pyspark"))
MARKERS = {"chaos", "daemon", "dagster", "golden", "spark"}
FIRST = ("chaos", "slow")

# Two busy cores make any deadline a matter of luck; pytest's timeout catches what hangs.
settings.register_profile("house", examples(100), deadline=None)
settings.load_profile("house")


def pytest_configure(config: pytest.Config) -> None:
    if Version("4.2") > SPARK:
        # PySpark 4.1 leaves the sockets through which it fetches rows to the garbage collector.
        for ignored in (
            "unclosed <socket:ResourceWarning",
            "Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
        ):
            config.addinivalue_line("filterwarnings", f"ignore:{ignored}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipped = pytest.mark.skip(reason="a stream that reads a stream needs Spark 4.2")
    for item in items:
        if item.get_closest_marker("reads_streams") and Version("4.2") > SPARK:
            item.add_marker(skipped)
        for folder in MARKERS.intersection(item.path.relative_to(TESTS).parts):
            item.add_marker(folder)
    # Two workers take files in this order: what takes long must not begin last. Files stay in one piece.
    begins: dict[Path, int] = {}
    for item in items:
        begins[item.path] = min(_begins(item), begins.get(item.path, len(FIRST)))
    items.sort(key=lambda item: begins[item.path])


def _begins(item: pytest.Item) -> int:
    """The place of a test's kind among those that begin first."""
    return next((place for place, marker in enumerate(FIRST) if item.get_closest_marker(marker)), len(FIRST))


@pytest.fixture(autouse=True)
def no_writer_outlives_its_test() -> Iterator[None]:
    """The lease of a writer that a test leaves open lapses: no thread renews it while other tests run."""
    begun: list[LeaseHeartbeat] = []
    begin = LeaseHeartbeat.begin

    def noted(heartbeat: LeaseHeartbeat) -> None:
        begun.append(heartbeat)
        begin(heartbeat)

    with pytest.MonkeyPatch.context() as patch:  # not the test's own: it is to be undone before the test's folders go
        patch.setattr(LeaseHeartbeat, "begin", noted)
        yield
    for heartbeat in begun:
        heartbeat.stop()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Server]":
    """An S3 server of this test process, begun when a test first needs it."""
    from tests.worlds.s3_server import running

    with running(tmp_path_factory.mktemp("s3")) as server:
        yield server
