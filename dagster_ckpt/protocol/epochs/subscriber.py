"""A subscriber: another stream that reads this one's change log. Its object identifies the reader, not its progress.

The object is in the folder of the stream that is read, is named by the reader's UUID, and never changes: a stream that
is recreated under the same name is another subscriber. The progress is in the reader's manifests.
"""

from dataclasses import dataclass

from dagster_ckpt.ids import EMPTY, Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.upstream import consumption_by_epoch
from dagster_ckpt.protocol.json_codec import TEXT, WHOLE, Record
from dagster_ckpt.protocol.manifest.manifest import Manifest
from dagster_ckpt.protocol.manifest.packing import pack, unpack


@dataclass(frozen=True, slots=True)
class Subscriber:
    """`stream` is the reader's name; it begins after `epoch` of the stream that is read.

    That epoch counts as consumed until the reader's manifests show more.
    """

    stream: str
    uuid: StreamUuid
    epoch: Epoch


_SUBSCRIBER = Record(Subscriber, {"stream": TEXT, "uuid": TEXT, "epoch": WHOLE}).codec()


def encode_subscriber(subscriber: Subscriber) -> bytes:
    return pack(_SUBSCRIBER.encode(subscriber))


def decode_subscriber(data: bytes, name: str) -> Subscriber:
    """The subscriber in these bytes; `name` is the object's, for errors.

    Raises `CorruptStateError` for damaged bytes, `IncompatibleStateError` for what a newer release wrote.
    """
    return unpack(data, name, _SUBSCRIBER.decode)


def least_consumed(manifest: Manifest, upstream: StreamUuid, begins: Epoch) -> Epoch:
    """How far the stream of this manifest has read the upstream: the least of several sources that read it.

    A source that has read nothing yet begins at `begins`, however far the others are.
    """
    found = {each.epoch for each in consumption_by_epoch(manifest.sources) if each.uuid == upstream} or {EMPTY}
    return min(begins if epoch == EMPTY else epoch for epoch in found)
