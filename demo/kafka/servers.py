"""A broker and a database of this machine's loopback, which can be killed and started again on their data."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.errors import DemoError
from tests.servers.kafka import JARS, Broker
from tests.servers.postgres import Database


@dataclass(frozen=True, slots=True)
class Servers:
    """Both run."""

    broker: Broker
    database: Database


@contextmanager
def started() -> Iterator[Servers]:
    """Both servers, on free ports and in a folder of their own. Raises DemoError where Kafka's jars are missing."""
    if not JARS:
        raise DemoError("there are no jars of Kafka: start the demo by `make demo-kafka`, which fetches them by Maven")
    # PostgreSQL runs as another user where this one is root, who may not go into just any folder.
    folder = Path(tempfile.mkdtemp(prefix="dagster-ckpt-demo-"))
    folder.chmod(0o755)
    with ExitStack() as at_the_end:
        at_the_end.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "kafka").mkdir()
        broker = Broker(folder / "kafka")
        at_the_end.callback(broker.kill)
        broker.start()
        database = Database(folder / "postgres", "flights", "of the demo", "flights")
        at_the_end.callback(database.kill)
        yield Servers(broker, database)
