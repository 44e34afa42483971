"""Runs the tests in parts, the quick ones first, and closes with one honest line about all of them.

`scripts/test.py` runs all but those that kill processes, `scripts/test.py kills` runs these, `scripts/test.py fast`
only those that need neither Spark nor Dagster, `scripts/test.py queries` those of known benchmarks and random ones,
`scripts/test.py memory` those that fill a task's memory for a while, and `scripts/test.py stream` a few tests that need
both, `scripts/test.py long` more of the same kinds as all others. Other words are arguments of pytest.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

HEAVY = "spark or dagster or slow"
KILLS = "chaos"
QUERIES = "queries"
MEMORY_LIMITS = "memory"
LONG = "long"
PYTHON_START = Path(__file__).resolve().parents[1] / "tests/worlds/python_start"
REPORTS = Path(".work/tests")
# With one compiler Java has room for 48 MB of code, fewer than a file of tests needs: it would drop and compile again.
JAVA = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC")
MEMORY = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
ROOM_BYTES = 4 << 30
"""Four times what tests leave at most."""


@dataclass(frozen=True)
class Part:
    """One call of pytest."""

    name: str
    arguments: tuple[str, ...]


# The folders are named too, so that the quick part does not even import Spark and Dagster to find that it skips them.
# tests/daemon waits for minutes: `make test-daemon`.
NOT_FAST = tuple(f"--ignore=tests/{folder}" for folder in ("spark", "dagster", "chaos", "daemon"))
FAST = Part("fast", ("-n", "2", "-m", f"not ({HEAVY} or {KILLS} or {LONG})", *NOT_FAST))
# A file's tests share a session of Spark. The order is that of tests/conftest.py: the longest come first. Three workers
# for two cores: these tests wait for processes to start, and for leases to lapse.
BY_FILE = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
FULL = Part("heavy", ("-m", f"({HEAVY}) and not ({KILLS} or {QUERIES} or {MEMORY_LIMITS} or {LONG})", *BY_FILE))
# Each worker gets a second file before its first is done: with one worker more, none waits behind the longest.
KILL = Part("kills", ("-m", KILLS, *BY_FILE, "-n", "4", "tests/chaos"))
QUERY = Part("queries", ("-m", QUERIES, *BY_FILE, "tests/spark"))
LONG_TESTS = Part("long", ("-m", LONG, *BY_FILE))
MEMORY_LIMIT = Part("memory", ("-m", MEMORY_LIMITS, "tests/unit/state"))
# What a new version of Spark or Dagster would break first: a project made from the wheel, every kind of step, and every
# call of Spark's private planner.
OF_QUERIES = ("tests/spark/test_queries_are_kept_up_to_date.py", "tests/spark/test_assets_return_queries.py")
STREAM = Part("stream", (*BY_FILE, "tests/docs/test_the_readmes_example_runs.py", "tests/examples", *OF_QUERIES))


@dataclass(frozen=True)
class Outcome:
    """What came of one part. A part that ended badly without naming a failed test counts as one failure."""

    passed: int
    failed: int
    skipped: int

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)


def chosen(words: Sequence[str]) -> tuple[Part, ...]:
    """The parts that these words name; without words all but the kills; other words are arguments of pytest."""
    named = {part.name: part for part in (FAST, FULL, KILL, QUERY, LONG_TESTS, MEMORY_LIMIT, STREAM)}
    if not words:
        return FAST, FULL
    if named.keys() >= set(words):
        return tuple(named[word] for word in words)
    return (Part("chosen", (*BY_FILE, *words)),)


def outcome(exit_code: int, report: str | None) -> Outcome:
    """Count a part's tests from its JUnit report (None: pytest wrote none)."""
    suites = [] if report is None else ET.fromstring(report).findall("testsuite")

    def total(attribute: str) -> int:
        return sum(int(suite.get(attribute, "0")) for suite in suites)

    failed, skipped = total("failures") + total("errors"), total("skipped")
    passed = total("tests") - failed - skipped
    return Outcome(passed, max(failed, 1) if exit_code else failed, skipped)


def place(memory: Path, environ: Mapping[str, str], room_bytes: int = ROOM_BYTES) -> Path | None:
    """A new folder for all that tests write, in memory; None where it stays with TMPDIR, or `memory` will not do.

    Stores and Dagster's databases wait for the disk at every step, which makes tests slow and proves nothing: a killed
    process leaves the same on either. The tests of what is a disk's take one, see tests/worlds/disk.py.
    """
    if "TMPDIR" in environ or not os.access(memory, os.W_OK | os.X_OK):
        return None
    found = os.statvfs(memory)
    if found.f_bavail * found.f_frsize < room_bytes or found.f_flag & os.ST_NOEXEC:  # some tests write programs
        return None
    return Path(tempfile.mkdtemp(prefix="dagster-ckpt-tests-", dir=memory))


def environment(folder: Path | None) -> dict[str, str]:
    """Many JVMs are started and none lives long: they compile their code once, and do not try to make it better.

    Their garbage collector has one thread: several would take the cores from pytest's workers. Python processes are not
    to compile PySpark at all, and the first compiles this project for all others.
    """
    options = [*JAVA, os.environ.get("SPARK_SUBMIT_OPTS", "")]
    temporary = {} if folder is None else {"TMPDIR": str(folder)}
    path = os.pathsep.join(filter(None, (str(PYTHON_START), os.environ.get("PYTHONPATH"))))
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, **temporary, "SPARK_SUBMIT_OPTS": " ".join(options).strip(), "PYTHONPATH": path}


def run(part: Part, folder: Path | None) -> Outcome:
    """Call pytest for one part."""
    report = REPORTS / f"{part.name}.xml"
    report.unlink(missing_ok=True)
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", *part.arguments, f"--junitxml={report}"]
    exit_code = subprocess.run(command, check=False, env=environment(folder)).returncode
    print(f"{part.name} tests: {time.monotonic() - started:.0f} s, pytest's exit code {exit_code}", flush=True)
    return outcome(exit_code, report.read_text() if report.exists() else None)


def main(parts: tuple[Part, ...]) -> int:
    """Run the parts one after another, also after a failure; 1 if any failed."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    total = Outcome(0, 0, 0)
    folder = place(MEMORY, os.environ)
    for part in parts:
        total += run(part, folder)
    if folder is not None and total.failed:
        print(f"what the failed tests wrote is kept, in memory: {folder}")
    elif folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"total: {total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(chosen(sys.argv[1:])))
