import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from dagster_ckpt.protocol.lease import ProcessId
from dagster_ckpt.storage.leases.process_identity import is_gone, this_process

FORK = multiprocessing.get_context("fork")


def test_this_process_is_there_and_always_the_same() -> None:
    assert this_process() == this_process()
    assert this_process().pid == os.getpid()
    assert not is_gone(this_process())


def test_a_killed_process_is_gone_even_before_it_is_reaped() -> None:
    receive, send = FORK.Pipe()

    def live() -> None:
        send.send(this_process())
        time.sleep(60)

    child = FORK.Process(target=live)
    child.start()
    process: ProcessId = receive.recv()
    assert not is_gone(process)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    for _ in range(1000):
        if is_gone(process):
            break
        time.sleep(0.005)
    assert is_gone(process), "a zombie has ended"
    child.join()
    assert is_gone(process)


def test_a_number_used_again_is_another_process() -> None:
    assert is_gone(replace(this_process(), started_ticks=this_process().started_ticks - 1))


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"boot": "another"}, {"namespace": "pid:[1]"}])
def test_processes_of_another_host_boot_or_container_are_unknown(change: dict[str, Any]) -> None:
    assert not is_gone(replace(this_process(), pid=2**22 + 1, **change))


def test_a_process_whose_name_holds_blanks_and_brackets_is_read_rightly(tmp_path: Any) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to(sys.executable)
    path = "import sys; sys.path.insert(0, '.')"
    imports = f"{path}; from dagster_ckpt.storage.leases.process_identity import is_gone, this_process"
    script = f"{imports}; print(is_gone(this_process()))"
    answer = subprocess.run([odd, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
