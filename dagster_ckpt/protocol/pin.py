"""A pin: a name that keeps one epoch readable, whatever is retired. Its object holds a full copy of the manifest."""

from dataclasses import dataclass

from dagster_ckpt.protocol.json_codec import TEXT, WHOLE, Record
from dagster_ckpt.protocol.manifest import Manifest
from dagster_ckpt.protocol.manifest_codec import MANIFEST, pack, unpack


@dataclass(frozen=True, slots=True)
class Pin:
    """`manifest` shows the pinned epoch; `time_ms` is when it was pinned (milliseconds since the Unix epoch)."""

    name: str
    time_ms: int
    manifest: Manifest


_PIN = Record(Pin, {"name": TEXT, "time_ms": WHOLE, "manifest": MANIFEST}).codec()


def encode_pin(pin: Pin) -> bytes:
    return pack(_PIN.encode(pin))


def decode_pin(data: bytes, name: str) -> Pin:
    """The pin of these bytes; `name` is the object's, for errors.

    Raises `CorruptStateError` for damaged bytes, `IncompatibleStateError` for what a newer release wrote.
    """
    return unpack(data, name, _PIN.decode)
