"""Where processor time goes: samples of all threads at work in Python and in Spark's JVM, as stacks."""

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dagster_ckpt.runtime.spark.jvm import java_class

Stacks = dict[tuple[str, ...], float]
"""Milliseconds by stack, the outermost call first."""
DRIVER, JVM, TASKS = "driver, in Python", "Spark, in the JVM", "tasks, in Python"
OTHERS = "compiler, collector, native code"
"""What of the JVM's time no sample of Java code shows."""
_FRAME = (
    "Thread._bootstrap", "Thread.run", "_worker", "_run_module", "_run_code", "<module>", "manager (pyspark/daemon",
    "worker (pyspark/daemon", "_FaulthandlerHelper",
)  # fmt: skip
"""How Python's stacks begin, whatever is done."""
_GLUE = (
    "$anonfun",
    "Thread.run",
    "ThreadPoolExecutor",
    "scala.",
    "java.util.concurrent.FutureTask",
    "jdk.internal.reflect",
)
"""Frames of the JVM between two that say something."""
_THREADS = {"Executor task": "tasks", "stream execution": "the query's thread", "dag-scheduler": "scheduler"}
_PYTHON_HZ = 250
_JVM_MS = 10
_STARTS_S = 2.0


class Profile:
    """Samples of what runs in the block of `recorded`."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self.stacks: Stacks = {}

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Sample until the end of the block."""
        raw, flight = self._folder / "python.txt", self._folder / "jvm.jfr"
        command = [
            str(Path(sys.executable).with_name("py-spy")), "record", "--pid", str(os.getpid()), "--subprocesses",
            "--nonblocking", "--rate", str(_PYTHON_HZ), "--format", "raw", "--duration", "36000", "--output", str(raw),
        ]  # fmt: skip
        python = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(_STARTS_S)
        recording = java_class(self._spark, "jdk.jfr.Recording")()
        period = java_class(self._spark, "java.time.Duration").ofMillis(_JVM_MS)
        recording.enable("jdk.ExecutionSample").withPeriod(period)
        recording.start()
        spent_ms = self._jvm_ms()
        yield
        spent_ms = self._jvm_ms() - spent_ms
        recording.stop()
        recording.dump(self._path_of(flight))
        recording.close()
        python.send_signal(signal.SIGINT)
        _, errors = python.communicate(timeout=60)
        if not raw.exists():
            raise RuntimeError(f"py-spy recorded nothing. errors={errors[-500:]}")
        jvm = self._jvm_stacks(flight)
        others = max(0.0, spent_ms - sum(jvm.values()))
        self.stacks = {**python_stacks(raw.read_text(), 1000 / _PYTHON_HZ), **jvm, (JVM, OTHERS): others}

    def _jvm_ms(self) -> float:
        """Processor time of the JVM so far."""
        gateway: Any = self._spark.sparkContext._gateway  # noqa: SLF001  (PySpark started it)
        fields = Path(f"/proc/{gateway.proc.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) * 1_000 / os.sysconf("SC_CLK_TCK")

    def _path_of(self, file: Path) -> Any:
        return java_class(self._spark, "java.io.File")(str(file)).toPath()

    def _jvm_stacks(self, flight: Path) -> Stacks:
        found: Stacks = defaultdict(float)
        for event in java_class(self._spark, "jdk.jfr.consumer.RecordingFile").readAllEvents(self._path_of(flight)):
            trace = event.getStackTrace()
            if trace is None:
                continue
            frames = [frame for each in trace.getFrames() if (frame := _java_frame(each.getMethod())) is not None]
            found[(JVM, _kind_of(event.getThread("sampledThread").getJavaName()), *reversed(frames))] += _JVM_MS
        return found


def python_stacks(text: str, sample_ms: float) -> Stacks:
    """Those of py-spy's raw format: frames, from the outermost, and the number of samples. A process is the first."""
    found: Stacks = defaultdict(float)
    for line in text.splitlines():
        stack, _, samples = line.rpartition(" ")
        frames = stack.split(";")
        processes = [place for place, frame in enumerate(frames) if frame.startswith("process ")]
        own = [frame for frame in frames[processes[-1] + 1 if processes else 0 :] if not frame.startswith(_FRAME)]
        where = TASKS if any("pyspark" in frame and "daemon" in frame for frame in frames) else DRIVER
        found[(where, *map(_python_frame, own))] += int(samples) * sample_ms
    return found


def per_trigger(stacks: Mapping[tuple[str, ...], float], triggers: int) -> Stacks:
    """The same for one of so many triggers."""
    return {stack: ms / triggers for stack, ms in stacks.items()}


def _python_frame(frame: str) -> str:
    """Without line numbers, which would part the same call."""
    name, _, place = frame.partition(" (")
    path = place.rstrip(")").rpartition(":")[0]
    return f"{name} ({Path(path).name})" if path else name


def _java_frame(method: Any) -> str | None:
    """The class, without its package, and the method; None for glue."""
    name = f"{method.getType().getName()}.{method.getName()}"
    kind, _, call = name.rpartition(".")
    short = kind.rpartition(".")[2]
    if short.isdigit() or any(part in name for part in _GLUE):  # Java's lambdas are numbers
        return None
    return f"{short}.{call}"


def _kind_of(thread: str | None) -> str:
    """A thread's name without its numbers."""
    name = "thread" if thread is None else str(thread)
    for kind, told in _THREADS.items():
        if name.startswith(kind):
            return told
    return "".join(each for each in name if not each.isdigit()).strip("- ") or "thread"
