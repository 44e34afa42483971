"""One object damaged, and what must come of it: a clear error that names it, or nothing at all."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from dagster_ckpt.errors import CheckpointError, CorruptStateError, InvalidPipelineError
from dagster_ckpt.history import StreamHistory, Verification
from dagster_ckpt.protocol.object_names import PINS
from tests.damage.streams import CARRIERS, Specimen, rows_of, timed
from tests.unit.history.made_streams import departures


class Damage(StrEnum):
    BIT = "a flipped bit"
    BYTES = "a stretch of other bytes"
    CUT = "cut off"
    EMPTY = "empty"
    LONGER = "longer"
    DELETED = "deleted"
    SWAPPED = "swapped with another"


OF_BYTES = {Damage.BIT, Damage.BYTES, Damage.CUT, Damage.EMPTY}
"""What cannot be done to an object without bytes, such as the mark of a trimmed stream."""


@dataclass(frozen=True)
class Case:
    """What is done to an object; `other` is the one it is swapped with, `chance` where and how."""

    stream: str
    object: str
    damage: Damage
    chance: int
    other: str | None = None

    @property
    def objects(self) -> set[str]:
        return {self.object} if self.other is None else {self.object, self.other}


class WrongError(AssertionError):
    """Damage led to what it must never lead to."""


def cases_of(specimen: Specimen, seed: int) -> Iterator[Case]:
    """Every object of the stream in every way."""
    chance = random.Random(f"{seed} {specimen.stream.name}")
    for name in specimen.objects:
        kind = name.partition("/")[0]
        others = [other for other in specimen.objects if other != name and other.partition("/")[0] == kind]
        possible = [damage for damage in Damage if specimen.objects[name] or damage not in OF_BYTES]
        for damage in possible:
            if damage is not Damage.SWAPPED:
                yield Case(specimen.stream.name, name, damage, chance.getrandbits(64))
            elif others:
                yield Case(specimen.stream.name, name, damage, chance.getrandbits(64), chance.choice(others))


def result_of(specimen: Specimen, case: Case) -> Counter[str]:
    """Do it, look at all that can be read, go back where that is called for, and make the stream whole again.

    What came of it, counted. Raises `WrongError` for wrong rows, an error of another class or one that does not name
    the object, a `verify` that does not find it, or a way back that does not lead back.
    """
    try:
        _inflict(specimen, case)
        return _looked_at(specimen, case)
    finally:
        specimen.restore()


def _inflict(specimen: Specimen, case: Case) -> None:
    chance = random.Random(case.chance)
    path, data = specimen.folder / case.object, bytearray(specimen.objects[case.object])
    match case.damage:
        case Damage.BIT:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        case Damage.BYTES:
            at = chance.randrange(len(data))
            data[at : at + 64] = chance.randbytes(len(data[at : at + 64]))
        case Damage.CUT:
            del data[chance.randrange(len(data)) :]
        case Damage.EMPTY:
            data.clear()
        case Damage.LONGER:
            data += chance.randbytes(chance.randrange(1, 200))
        case Damage.DELETED:
            path.unlink()
            return
        case Damage.SWAPPED:
            assert case.other is not None
            (specimen.folder / case.other).write_bytes(data)
            data = bytearray(specimen.objects[case.other])
    path.write_bytes(data)


def _looked_at(specimen: Specimen, case: Case) -> Counter[str]:
    history = specimen.history()
    readings: list[tuple[Callable[[], object], object]] = [
        (lambda: history.latest().epoch, specimen.current),
        (lambda: rows_of(history.read()), specimen.rows[specimen.current]),
        *(
            (lambda epoch=epoch: rows_of(history.read(epoch)), rows)
            for epoch, rows in specimen.rows.items()
            if epoch > 0
        ),
        (history.pins, specimen.pins),
    ]
    errors = [error for read, expected in readings if (error := _error(read, expected, case)) is not None]
    verification = _verified(history, case, errors)
    counts = Counter(cases=1, **{case.object.partition("/")[0].partition(".")[0]: 1})
    counts["an error that names it" if errors else "without effect"] += 1
    current = _error(lambda: rows_of(history.read()), specimen.rows[specimen.current], case)
    if current is not None:
        # An error knows of one object. Where two are damaged, `verify` knows of both.
        said = str(current) if case.damage is not Damage.SWAPPED else f"go_back={verification.command}"
        counts["gone back over"] += _gone_back(specimen, history, said)
    return counts


def _error(read: Callable[[], object], expected: object, case: Case) -> CheckpointError | None:
    """What the reading raised; None where it gave what it did before the damage."""
    try:
        found = read()
    except CorruptStateError as error:
        if not any(name in str(error) for name in case.objects):
            raise WrongError(f"the error names another object. {case=}, {error=}") from error
        return error
    except InvalidPipelineError as error:
        # Whether a pin was lost or taken away nobody can know.
        if case.damage is not Damage.DELETED or not case.object.startswith(PINS):
            raise WrongError(f"the error blames the user. {case=}") from error
        return error
    except Exception as error:
        raise WrongError(f"an error of another class. {case=}, {error!r}") from error
    lost_pin = case.damage is Damage.DELETED and case.object.startswith(PINS) and found == []
    if found != expected and not lost_pin:
        raise WrongError(f"something else was read than before. {case=}, {found=}, {expected=}")
    return None


def _verified(history: StreamHistory, case: Case, errors: list[CheckpointError]) -> Verification:
    verification = history.verify()
    found = {finding.object for finding in verification.findings}
    if any(isinstance(error, CorruptStateError) for error in errors) and not found & case.objects:
        raise WrongError(f"verify does not find it. {case=}, {found=}")
    if found - case.objects:
        raise WrongError(f"verify finds what is whole. {case=}, {found=}")
    return verification


def _gone_back(specimen: Specimen, history: StreamHistory, said: str) -> int:
    """Go back where the words say, and let a writer go on from there."""
    command = re.search(r"(?:go_back|begin_anew)=.* --epoch (\d+)", said)
    if command is None:
        raise WrongError(f"no way back is named. {said=}")
    epoch = int(command[1])
    try:
        history.rollback(epoch)
        if history.latest().epoch != epoch or rows_of(history.read()) != specimen.rows[epoch]:
            raise WrongError(f"the way back leads elsewhere. {said=}")
        specimen.stream.open()
        has_times = "at" in specimen.stream.operator.pipeline.inputs[0].schema.names
        specimen.stream.commit(timed(9) if has_times else departures({carrier: [1.0] for carrier in CARRIERS}))
        specimen.stream.close()
        history.read()
        if history.manifest().statistics.rows_in != len(CARRIERS):
            raise WrongError(f"the stream does not go on. {said=}")
    except CheckpointError as error:
        raise WrongError(f"there is no way back. {said=}, {error=}") from error
    return 1
