"""Changes one thing in the code, runs the tests that call it, and lists the changes that no test has noticed.

`python -m scripts.mutants protocol lsm` does these rooms, all without a name. mutmut makes the mutants and runs the
tests, a room after another below `.work/mutants`. What it knows by then stays there: a run that was killed, or whose
time was up, goes on where it was. Survivors that `tests/mutants.toml` does not judge are the result; the exit status is
1 then.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from scripts import proofs

WORK = Path(".work/mutants")
PROOF = "mutants of the coordinator of epochs"
JUDGED = Path("tests/mutants.toml")
MUTMUT = str(Path(sys.executable).with_name("mutmut"))


@dataclass(frozen=True)
class Room:
    """Code to change, as patterns of files, and the tests that should notice. None of them starts a JVM."""

    code: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "coordinator": Room(
        ("dagster_ckpt/protocol/coordinator/*",),
        ("tests/unit/protocol/coordinator", "tests/properties/test_coordinator_in_any_order.py"),
    ),
    "protocol": Room(
        ("dagster_ckpt/protocol/*",),
        (
            "tests/unit/protocol",
            "tests/unit/storage/writer",
            "tests/properties/test_coordinator_in_any_order.py",
            "tests/properties/test_any_manifest_survives_its_bytes.py",
            "tests/properties/test_references_miss_no_object.py",
            "tests/properties/test_the_newest_aligned_cut_is_found.py",
            "tests/properties/test_hash_ranges_are_sets_of_hashes.py",
        ),
    ),
    "lsm": Room(
        ("dagster_ckpt/lsm/*",),
        (
            "tests/unit/lsm",
            "tests/unit/state/tables",
            "tests/properties/test_merged_runs_are_the_newest_of_each_key.py",
            "tests/properties/test_merges_lose_no_row.py",
            "tests/properties/test_the_state_engine_is_a_dict.py",
        ),
    ),
    "retraction": Room(
        (
            "dagster_ckpt/operators/shared/zsets/*",
            "dagster_ckpt/operators/shared/retraction.py",
            "dagster_ckpt/operators/shared/net_changes.py",
        ),
        (
            "tests/unit/operators/shared",
            "tests/unit/operators/aggregates",
            "tests/unit/operators/joins",
            "tests/unit/operators/rows",
            "tests/unit/operators/sets",
            "tests/properties/test_net_changes_are_the_difference_of_two_tables.py",
            "tests/properties/test_zsets_add_up.py",
        ),
    ),
    "delivery": Room(("dagster_ckpt/delivery/*",), ("tests/unit/delivery",)),
}


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("rooms", nargs="*", help=f"some of {', '.join(ROOMS)}")
    arguments.add_argument("--minutes", type=float, help="for all of them together; without it, to the end")
    arguments.add_argument("--processes", type=int, default=2)
    chosen = arguments.parse_args()
    if unknown := [name for name in chosen.rooms if name not in ROOMS]:
        arguments.error(f"unknown rooms: {', '.join(unknown)}. There are {', '.join(ROOMS)}")
    ends = None if chosen.minutes is None else time.monotonic() + chosen.minutes * 60
    unjudged = 0
    for name in chosen.rooms or [name for name in ROOMS if name != "coordinator"]:  # a part of protocol
        unjudged += do(name, ROOMS[name], ends, chosen.processes)
    return 1 if unjudged else 0


def do(name: str, room: Room, ends: float | None, processes: int) -> int:
    """Do one room, and report. Returns the number of survivors that are not judged yet."""
    folder = WORK / name
    lay_out(folder, room)
    survivors = tests_changed(folder, room)
    for only in ([survivors] if survivors else []) + [[]]:
        left = None if ends is None else max(1.0, ends - time.monotonic())
        command = [MUTMUT, "run", "--max-children", str(processes), *only]
        with (
            (folder / "mutmut.log").open("a") as log,
            subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as run,
        ):
            try:
                status = run.wait(left)
            except subprocess.TimeoutExpired:
                run.terminate()  # what it has found is written down as it is found
                break
            if status != 0:
                raise SystemExit(f"mutmut failed: see {folder / 'mutmut.log'}")
    return report(name, folder)


def lay_out(folder: Path, room: Room) -> None:
    """Copy the code and its tests, each file only if it has changed: mutmut tests again what is new."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in ("dagster_ckpt", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "fixtures" if source == "tests" else "")
        shutil.copytree(source, folder / source, dirs_exist_ok=True, ignore=ignored)
        for path in [path for path in (folder / source).rglob("*.py") if not Path(path.relative_to(folder)).exists()]:
            path.unlink()
    settings = {
        "source_paths": ["dagster_ckpt"],
        "only_mutate": list(room.code),
        "pytest_add_cli_args_test_selection": list(room.tests),
        "pytest_add_cli_args": ["-q", "-p", "no:cacheprovider"],
        "also_copy": ["tests"],
    }
    lines = "\n".join(f"{key} = {value!r}" for key, value in settings.items())
    (folder / "pyproject.toml").write_text(f"{Path('pyproject.toml').read_text()}\n[tool.mutmut]\n{lines}\n")


def tests_changed(folder: Path, room: Room) -> list[str]:
    """The survivors so far, if tests have changed since: they are tested again. mutmut looks at the code alone."""
    digest = hashlib.sha256()
    files = (path for test in map(Path, room.tests) for path in (test, *test.rglob("*.py")) if path.is_file())
    for path in sorted(files):
        digest.update(path.read_bytes())
    stamp, known = folder / "tests.sha256", digest.hexdigest()
    before = stamp.read_text() if stamp.exists() else known
    survivors = [] if before == known else [mutant for mutant, found in results(folder) if found == "survived"]
    if before != known:
        (folder / "mutants/mutmut-stats.json").unlink(missing_ok=True)  # which tests call what
    stamp.write_text(known)
    return survivors


def results(folder: Path) -> list[tuple[str, str]]:
    """Each mutant and what became of it: `killed`, `survived`, `timeout`, `no tests`, `not checked` ..."""
    done = subprocess.run([MUTMUT, "results", "--all", "true"], cwd=folder, capture_output=True, text=True, check=False)
    found = (re.fullmatch(r"\s*(\S+): ([\w ]+)", line) for line in done.stdout.splitlines())
    return [(line[1], line[2]) for line in found if line]


def report(name: str, folder: Path) -> int:
    """Print the figures of a room, and each survivor that is not judged. Returns how many there are."""
    found = results(folder)
    counts = Counter(status for _, status in found)
    judged = {(one["function"], one["now"]) for one in tomllib.loads(JUDGED.read_text()).get("equivalent", [])}
    left = []
    for mutant, status in found:
        function = mutant.rpartition("__mutmut_")[0]
        if status in {"survived", "timeout", "suspicious"}:
            was, now = change_of(folder, mutant)
            if (function, now) not in judged:
                left.append(f"{mutant} ({status})\n    - {was}\n    + {now}")
    uncalled = Counter(mutant.rpartition("__mutmut_")[0] for mutant, status in found if status == "no tests")
    left += [f"{function}: {count} mutants, and no test of the room calls it" for function, count in uncalled.items()]
    print(f"{name}: {len(found)} mutants, {dict(counts)}, {len(left)} not judged")
    (folder / "survivors.txt").write_text("\n".join(left) + "\n")
    for one in left:
        print(one)
    if name == "coordinator" and not left and not counts["not checked"] and proofs.asked_for():
        noticed = f"tests notice {counts['killed']} of {len(found)} changes"
        unseen = len(found) - counts["killed"]
        proofs.publish(PROOF, f"{noticed}; `{JUDGED}` says why no test can notice the other {unseen}")
    return len(left)


def change_of(folder: Path, mutant: str) -> tuple[str, str]:
    """The lines that were changed, and what they are in the mutant."""
    done = subprocess.run([MUTMUT, "show", mutant], cwd=folder, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("---", "+++"))]
    return tuple(" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")  # type: ignore[return-value]


if __name__ == "__main__":
    sys.exit(main())
