import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.spark.session import _check_sockets, announce_settings


def test_what_streams_need_is_put_before_the_users_own_arguments() -> None:
    environ = {"PYSPARK_SUBMIT_ARGS": "--driver-memory 2g pyspark-shell"}
    announce_settings(environ)
    words = environ["PYSPARK_SUBMIT_ARGS"].split()
    assert words[-3:] == ["--driver-memory", "2g", "pyspark-shell"]
    assert "spark.stage.maxConsecutiveAttempts=1" in words
    assert "spark.stage.ignoreDecommissionFetchFailure=false" in words
    assert "spark.executorEnv.PYSPARK_UDS_MODE=false" in words


def test_announcing_twice_changes_nothing_more() -> None:
    environ: dict[str, str] = {}
    announce_settings(environ)
    once = dict(environ)
    announce_settings(environ)
    assert environ == once


def test_settings_of_the_user_stay() -> None:
    environ = {"PYSPARK_SUBMIT_ARGS": "--conf spark.executorEnv.PYSPARK_UDS_MODE=true pyspark-shell"}
    announce_settings(environ)
    assert environ["PYSPARK_SUBMIT_ARGS"].count("PYSPARK_UDS_MODE") == 1


@pytest.mark.parametrize(
    ("folder_mode", "socket_mode", "is_refused"),
    [(0o700, 0o775, False), (0o1777, 0o755, False), (0o1777, 0o775, True), (0o750, 0o775, True), (0o755, 0o757, True)],
)
def test_sockets_that_others_can_connect_to_are_refused(folder_mode: int, socket_mode: int, is_refused: bool) -> None:
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as server:
        address = Path(name, ".sock")
        server.bind(str(address))
        address.chmod(socket_mode)
        Path(name).chmod(folder_mode)
        context = SimpleNamespace(_accumulatorServer=SimpleNamespace(server_address=str(address)))
        if is_refused:
            with pytest.raises(InvalidPipelineError, match=rf"other users can connect.*folder={name}"):
                _check_sockets(context)
        else:
            _check_sockets(context)
