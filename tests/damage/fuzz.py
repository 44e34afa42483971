"""`python -m tests.damage.fuzz`: objects that say something else and are signed again, as no damage leaves them.

Whatever an object says, each reading ends in an answer or an error of ours, within a limit of time and of memory: a
count or a length in it stands for no more than the object holds. Cases are numbered: each number is always the same.
"""

import faulthandler
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import click

from dagster_ckpt.errors import CheckpointError
from dagster_ckpt.protocol.epochs.topic_offsets import parse_offsets
from dagster_ckpt.protocol.epochs.upstream import decode
from dagster_ckpt.protocol.json_codec import CHECKSUM, checksum_of
from dagster_ckpt.runtime.lag.source_lags import unread_epochs
from dagster_ckpt.storage.chain.indexed_lists import _checksum
from dagster_ckpt.storage.retention_refs.upstream_log import NothingFollowsError
from scripts import proofs
from tests.damage.streams import Specimen, specimens
from tests.worlds.signed_runs import descriptor_of, resigned

PROOF = "objects that say anything and have the right checksums"
SECONDS_MAX = 30
"""For one case, on a busy host: one takes 0.1 s."""
MEMORY_MAX = 2 << 30
"""Beyond what the process has before the first case."""
CASES_AT_ONCE = 500
"""Cases that one process does."""
COUNTS = 0.3
"""So often the number of a list's entries is changed, and not just anything."""
NUMBERS = [0, 1, -1, 2, 255, 2**31 - 1, 2**31, 2**40, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 1.5, 1e308]
TEXTS = ["", "x", "0" * 16, "f" * 33, "../x", "\0", "é" * 200, "[" * 5_000, "9" * 5_000]
OTHERS: list[Any] = [None, True, [], {}, [[]], {"all": 0}, {"all": None}]
POSITIONS = [
    '{"uuid": "a", "epoch": 3, "part": 1, "parts": 2, "term": 1}',
    '{"departures": {"0": 120, "1": 130}}',
    '{"logOffset": 4}',
]


@dataclass(frozen=True)
class Found:
    """What came of some cases. `wrong` has for each that went wrong its number, its object and what happened."""

    counts: Counter[str]
    wrong: tuple[str, ...]


def mutated(value: Any, chance: Random, depth: int = 0) -> Any:
    """The JSON with one thing in it changed, at a place that chance chooses."""
    if isinstance(value, str) and depth and chance.random() < 0.5 and value.startswith("{"):
        with suppress(ValueError):  # a position is JSON as text
            return json.dumps(mutated(json.loads(value), chance))
    inner = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    if inner and chance.random() < 0.9:
        at = chance.choice(list(inner))
        changed = dict(value) if isinstance(value, dict) else list(value)
        changed[at] = mutated(changed[at], chance, depth + 1)
        return changed
    return _other(value, chance)


def _other(value: Any, chance: Random) -> Any:
    if chance.random() < 0.2:
        return chance.choice([*NUMBERS, *TEXTS, *OTHERS])
    match value:
        case bool() | None:
            others = OTHERS
        case int() | float():
            others = [*NUMBERS, value + 1, value * 2]
        case str():
            others = [*TEXTS, value[:-1], value * 2]
        case list():
            others = [value * 2, value[:-1], value[::-1], value * 1_000]
        case _:
            others = [{name: value[name] for name in value if name != left_out} for left_out in [*value, ""]]
    return chance.choice(others)


def case(specimen: Specimen, chance: Random) -> str:
    """Change one object of the stream, and sign it again. Returns its name."""
    name = chance.choice(sorted(specimen.objects))
    data, kind = specimen.objects[name], name.partition("/")[0]
    checksum = None
    if kind in {"manifest", "pins", "subscribers", "index"} and data[:2] == b"\x1f\x8b":
        data = gzip.compress(json.dumps(_repeatedly(json.loads(gzip.decompress(data)), chance)).encode(), 1)
        checksum = _checksum(data)
    elif kind in {"lease", "requests"}:
        fields = {key: value for key, value in json.loads(data).items() if key != CHECKSUM}
        fields = _repeatedly(fields, chance)
        if isinstance(fields, dict):
            fields = {**fields, CHECKSUM: checksum_of(fields)}
        data = json.dumps(fields).encode()
    elif kind == "state":
        data, checksum = resigned(data, _descriptor(data, chance))
    else:
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 4) if data else 0):
            changed[chance.randrange(len(changed))] = chance.choice([0, 0x7F, 0xFF, chance.randrange(256)])
        data, checksum = bytes(changed), f"{zlib.crc32(changed):08x}"
    (specimen.folder / name).write_bytes(data)
    if checksum is not None:
        _sign(specimen, name, data, checksum)
    return name


def _repeatedly(value: Any, chance: Random) -> Any:
    for _ in range(chance.randrange(1, 3)):
        lists = [columns for columns in _within(value) if "count" in columns]
        if lists and chance.random() < COUNTS:
            chance.choice(lists)["count"] = chance.choice(NUMBERS)
        else:
            value = mutated(value, chance)
    return value


def _within(value: Any) -> Iterator[dict[str, Any]]:
    """All objects in the JSON, the inner ones first."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _within(inner)
    if isinstance(value, dict):
        yield value


def _descriptor(data: bytes, chance: Random) -> dict[str, object]:
    fields = _repeatedly(descriptor_of(data), chance)
    return fields if isinstance(fields, dict) else {}


def _sign(specimen: Specimen, name: str, data: bytes, checksum: str) -> None:
    """Let all that names the object say that it has these bytes."""
    for other, packed in specimen.objects.items():
        if other.partition("/")[0] in {"manifest", "pins"} and other != name and packed[:2] == b"\x1f\x8b":
            fields = json.loads(gzip.decompress(packed))
            files = [columns for columns in _within(fields) if {"path", "checksum", "bytes"} <= columns.keys()]
            signed = [_signed(columns, name, len(data), checksum) for columns in files]
            if any(signed):
                (specimen.folder / other).write_bytes(gzip.compress(json.dumps(fields).encode(), 1))


def _signed(columns: dict[str, Any], name: str, size: int, checksum: str) -> bool:
    count = columns["count"]
    paths = _written_out(columns["path"], count)
    if name not in paths:
        return False
    for column, value in (("bytes", size), ("checksum", checksum)):
        values = _written_out(columns[column], count)
        columns[column] = [value if path == name else each for path, each in zip(paths, values, strict=True)]
    return True


def _written_out(column: Any, count: int) -> list[Any]:
    return [column["all"]] * count if isinstance(column, dict) else column


def readings(specimen: Specimen) -> list[Callable[[], object]]:
    """All that can be read of a stream."""
    history = specimen.history()
    return [
        history.latest,
        history.epochs,
        history.read,
        *(partial(history.read, epoch) for epoch in specimen.rows),
        lambda: history.changes(after=0),
        history.late_rows,
        history.pins,
        history.subscribers,
        history.upstreams,
        history.writer,
        lambda: unread_epochs(history.manifest(), decode(POSITIONS[0])),
        history.verify,
    ]


def run(first: int, cases: int, folder: Path) -> Found:
    """The cases from that number on. Ends the process where one takes too long."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    with specimens(folder) as made:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_MAX, resource.RLIM_INFINITY))
        for number in range(first, first + cases):
            chance = Random(f"case {number}")
            specimen = chance.choice(made)
            faulthandler.dump_traceback_later(SECONDS_MAX, exit=True)
            click.echo(f"case {number}")
            name = case(specimen, chance)
            try:
                counts[name.partition("/")[0]] += 1
                for read in [*readings(specimen), _positions_decoder(chance)]:
                    what = _outcome(read)
                    counts[what.partition(":")[0]] += 1
                    if what.startswith("wrong"):
                        wrong.append(f"case {number}, {specimen.stream.name} {name}, {what}")
            finally:
                faulthandler.cancel_dump_traceback_later()
                specimen.restore()
    return Found(counts, tuple(wrong))


def _outcome(read: Callable[[], object]) -> str:
    try:
        read()
    except (CheckpointError, NothingFollowsError):
        return "an error of ours"
    except Exception as error:  # noqa: BLE001  (that is what is looked for)
        return f"wrong: {_where(error)} {type(error).__name__}: {str(error)[:200]}"
    return "an answer"


def _where(error: Exception) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None and "dagster_ckpt" in at.tb_next.tb_frame.f_code.co_filename:
        at = at.tb_next
    return "" if at is None else f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"


def _positions_decoder(chance: Random) -> Callable[[], object]:
    def decode_positions() -> None:
        for text in POSITIONS:
            changed = json.dumps(_repeatedly(json.loads(text), chance))
            for read in (decode, parse_offsets):
                with suppress(ValueError):
                    read(changed)

    return decode_positions


@click.command()
@click.option("--first", default=0, show_default=True, help="The number of the first case.")
@click.option("--cases", default=0, help="So many cases in this process. [default: others, until the time is up]")
@click.option("--minutes", default=5.0, show_default=True, help="How long.")
def main(first: int, cases: int, minutes: float) -> None:
    """Do cases; the exit status is 1 where one led to anything but an answer or an error of ours."""
    if cases:
        with tempfile.TemporaryDirectory() as folder:
            found = run(first, cases, Path(folder))
        for one in found.wrong:
            click.echo(f"WRONG: {one}")
        click.echo(f"{cases} cases: {dict(sorted(found.counts.items()))}")
        sys.exit(1 if found.wrong else 0)
    ends, wrong, began = time.monotonic() + minutes * 60, 0, first
    while time.monotonic() < ends:
        words = [sys.executable, "-m", "tests.damage.fuzz", "--first", str(first), "--cases", str(CASES_AT_ONCE)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        said = [line for line in lines if line.startswith("WRONG")]
        if done.returncode and not said:
            said = [f"WRONG: the process ended at {lines[-1] if lines else 'its start'}\n{done.stderr[-3000:]}"]
        for line in said:
            click.echo(line)
        wrong += len(said)
        click.echo(f"cases {first} to {first + CASES_AT_ONCE - 1}: {len(said)} wrong")
        first += CASES_AT_ONCE
    if not wrong and proofs.asked_for():
        limits = f"{SECONDS_MAX} s and {MEMORY_MAX >> 30} GiB"
        proofs.publish(PROOF, f"{first - began:,} cases, each read within {limits}: an answer or an error of ours")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
