"""A Kafka broker on this machine's loopback, which is its own controller. `scripts/jars.sh` fetches the jars."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.processes import HOST, Server, free_port, listens, until

JARS = os.environ.get("DAGSTER_CKPT_TEST_JARS", "")
"""Where the jars are; empty where they were not fetched."""

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"


def _java() -> str:
    """The Java that Spark has: scripts/run.sh sets JAVA_HOME."""
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


class Broker:
    """A broker with its data below `folder`. Killed and started again it has the same address and the same data.

    `settings` are added to those of the broker, and replace them. `listener` is one more: `SASL_PLAINTEXT://host:port`.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, listener: str = "") -> None:
        self._folder = folder
        self._port, controller = free_port(), free_port()
        self._file = folder / "server.properties"
        listeners = ",".join(filter(None, (f"PLAINTEXT://{self.address}", listener)))
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(f"{each}:{each}" for each in _PROTOCOLS)
            + ",CONTROLLER:PLAINTEXT",
            "log.dirs": f"{folder}/logs",
            # A broker that was killed registers again once its old session has ended.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "num.partitions": "3",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self._file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        # No JIT beyond the first level: a test's broker lives for seconds.
        self._java = [_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/broker/*"]
        name = [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._file)]
        with (folder / "log").open("ab") as log:
            subprocess.run(name, check=True, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        self.server: Server | None = None

    @property
    def address(self) -> str:
        """Host and port of the listener without a password."""
        return f"{HOST}:{self._port}"

    def start(self) -> None:
        """Start, and wait until it listens."""
        self.server = Server([*self._java, "kafka.Kafka", str(self._file)], self._folder / "log", {}, self._folder)
        until("the broker listens", lambda: listens(self._port), 180)

    def kill(self) -> None:
        """SIGKILL it."""
        if self.server is not None:
            self.server.kill()
            self.server = None


@contextmanager
def kafka(folder: Path, settings: Mapping[str, str] | None = None, listener: str = "") -> Iterator[Broker]:
    """A broker that runs."""
    broker = Broker(folder, settings, listener)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
