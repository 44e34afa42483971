"""A pin: a name that keeps one epoch readable after it is retired. Its object holds a full copy of the manifest.

A fork's pin has an extra field that names the fork. Other pins lack it, so their bytes never changed.
"""

from dataclasses import dataclass

from dagster_ckpt.ids import StreamUuid
from dagster_ckpt.protocol.json_codec import TEXT, WHOLE, Record, optional
from dagster_ckpt.protocol.manifest.codec import MANIFEST
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.manifest.packing import pack, unpack


@dataclass(frozen=True, slots=True)
class ForkId:
    """The stream for which a fork pinned an epoch: its name, and the UUID it is created with."""

    stream: str
    uuid: StreamUuid


@dataclass(frozen=True, slots=True)
class Pin:
    """`manifest` shows the pinned epoch; `time_ms` is when it was pinned (milliseconds since the Unix epoch).

    `fork` needs it; None: a user made it.
    """

    name: str
    time_ms: int
    manifest: Manifest
    fork: ForkId | None = None


_FORK = "fork"
_FORK_ID = optional(Record(ForkId, {"stream": TEXT, "uuid": TEXT}).codec())
_PIN = Record(
    Pin,
    {
        "name": TEXT,
        "time_ms": WHOLE,
        "manifest": MANIFEST,
        _FORK: _FORK_ID,
    },
).codec()


def encode_pin(pin: Pin) -> bytes:
    return pack({name: value for name, value in _PIN.encode(pin).items() if name != _FORK or value is not None})


def decode_pin(data: bytes, name: str) -> Pin:
    """The pin in these bytes; `name` is the object's, for errors.

    Raises `CorruptStateError` for damaged bytes, `IncompatibleStateError` for what a newer release wrote.
    """
    return unpack(data, name, lambda fields: _PIN.decode({_FORK: None, **fields}))


def decode_fork(data: bytes, name: str) -> ForkId | None:
    """The fork that a pin belongs to, at a fraction of the cost. Raises as `decode_pin` does."""
    return unpack(data, name, lambda fields: _FORK_ID.decode(fields.get(_FORK)))
