"""A pin: a name that keeps one epoch readable after it is retired. Its object holds a full copy of the manifest.

A pin keeps its epoch for certain once it was validated after it was written. What that found is its verdict: an object
of its own, named by the pin's nonce and created once.
"""

from dataclasses import dataclass
from enum import Enum

from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.ids import Nonce, StreamUuid
from dagster_ckpt.protocol.json_codec import TEXT, WHOLE, Codec, Json, Record, optional
from dagster_ckpt.protocol.manifest.codec import MANIFEST
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.manifest.packing import pack, unpack
from dagster_ckpt.protocol.object_names import is_object_name, verdict_name


@dataclass(frozen=True, slots=True)
class ForkId:
    """The stream for which a fork pinned an epoch: its name, and the UUID it is created with."""

    stream: str
    uuid: StreamUuid


@dataclass(frozen=True, slots=True)
class Pin:
    """`manifest` shows the pinned epoch; `time_ms` is when it was pinned (milliseconds since the Unix epoch).

    `fork` needs it; None: a user or a subscriber made it.
    """

    name: str
    time_ms: int
    manifest: Manifest
    nonce: Nonce
    fork: ForkId | None = None


class PinVerdict(bytes, Enum):
    """What validating a pin has found; the value is the object's content."""

    KEPT = b"kept"
    LATE = b"late"


_FORK = "fork"
_FORK_ID = optional(Record(ForkId, {"stream": TEXT, "uuid": TEXT}).codec())


def _nonce(value: Json) -> Nonce:
    if type(value) is not str or not is_object_name(verdict_name(Nonce(value))):
        raise ValueError("not a nonce that names the verdict on a pin")
    return Nonce(value)


_PIN = Record(
    Pin,
    {
        "name": TEXT,
        "time_ms": WHOLE,
        "manifest": MANIFEST,
        "nonce": Codec(_nonce),
        _FORK: _FORK_ID,
    },
    absent={_FORK: None},
).codec()


def encode_pin(pin: Pin) -> bytes:
    return pack(_PIN.encode(pin))


def decode_pin(data: bytes, name: str) -> Pin:
    """The pin in these bytes; `name` is the object's, for errors.

    Raises `CorruptStateError` for damaged bytes, `IncompatibleStateError` for what a newer release wrote.
    """
    return unpack(data, name, _PIN.decode)


def decode_fork(data: bytes, name: str) -> ForkId | None:
    """The fork that a pin belongs to, at a fraction of the cost. Raises as `decode_pin` does."""
    return unpack(data, name, lambda fields: _FORK_ID.decode(fields.get(_FORK)))


def decode_verdict(data: bytes, name: str) -> PinVerdict:
    """The verdict in these bytes; `name` is the object's, for errors. Raises `CorruptStateError` for others."""
    try:
        return PinVerdict(data)
    except ValueError:
        raise CorruptStateError(
            f"the verdict on a pin is damaged: restore it from a backup, or remove the pin. object={name}"
        ) from None
