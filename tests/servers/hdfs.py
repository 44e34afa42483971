"""HDFS on this machine's loopback: a NameNode and a DataNode, each a process. `scripts/jars.sh` fetches the jars."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

import requests

from tests.servers.processes import HOST, Server, free_port, until

JARS = os.environ.get("DAGSTER_CKPT_TEST_JARS", "")
"""Where the jars are; empty where they were not fetched."""

_SERVERS = "org.apache.hadoop.hdfs.server"


class Hdfs:
    """A cluster with its data below `folder`. Killed and started again it has the same addresses and the same data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        core = {"fs.defaultFS": f"hdfs://{HOST}:{free_port()}", "hadoop.tmp.dir": str(folder / "data")}
        hdfs = {
            "dfs.namenode.http-address": f"{HOST}:{self.port}",
            "dfs.datanode.address": f"{HOST}:{free_port()}",
            "dfs.datanode.http.address": f"{HOST}:{free_port()}",
            "dfs.datanode.ipc.address": f"{HOST}:{free_port()}",
            "dfs.datanode.hostname": HOST,
            "dfs.replication": "1",
            # Out of safe mode at once: a test's cluster has one DataNode.
            "dfs.namenode.safemode.extension": "0",
        }
        _write(folder / "core-site.xml", core)
        _write(folder / "hdfs-site.xml", hdfs)
        home = os.environ.get("JAVA_HOME")
        java = f"{home}/bin/java" if home else "java"
        self._java = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{JARS}/hdfs/*"]
        with (folder / "log").open("ab") as log:
            command = [*self._java, f"{_SERVERS}.namenode.NameNode", "-format", "-force"]
            subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
        self._servers: list[Server] = []

    def start(self) -> None:
        """Start, and wait until files can be written."""
        for name in ("namenode.NameNode", "datanode.DataNode"):
            self._servers.append(Server([*self._java, f"{_SERVERS}.{name}"], self._folder / "log", {}, self._folder))
        until("HDFS has a DataNode and has left its safe mode", self._is_ready, 120)

    def kill(self) -> None:
        """SIGKILL both processes."""
        for server in self._servers:
            server.kill()
        self._servers.clear()

    def _is_ready(self) -> bool:
        bean = "Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            [state] = requests.get(f"http://{HOST}:{self.port}/jmx", {"qry": bean}, timeout=5).json()["beans"]
        except (OSError, ValueError):
            return False
        return (state["NumLiveDataNodes"], state["FSState"]) == (1, "Operational")


@contextmanager
def hdfs(folder: Path) -> Iterator[Hdfs]:
    """A cluster that runs."""
    cluster = Hdfs(folder)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.kill()


def _write(file: Path, settings: Mapping[str, str]) -> None:
    lines = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    )
    file.write_text(f"<configuration>{''.join(lines)}</configuration>")
