"""A subscriber: another stream that reads this one's change log. Its object says who; how far it is, it says itself.

It lies in the folder of the stream that is read, is named by the reader's UUID, and is created once, never changed: a
stream that is made anew under the same name is another subscriber.
"""

from dataclasses import dataclass

from dagster_ckpt.ids import EMPTY, Epoch, StreamUuid
from dagster_ckpt.protocol.epochs.upstream import consumed_in_each_way
from dagster_ckpt.protocol.json_codec import TEXT, WHOLE, Record
from dagster_ckpt.protocol.manifest.codec import pack, unpack
from dagster_ckpt.protocol.manifest.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Subscriber:
    """`stream` is the reader's name, `epoch` the epoch of the stream that is read behind which it begins.

    It counts as consumed until the reader's own manifests say more.
    """

    stream: str
    uuid: StreamUuid
    epoch: Epoch


_SUBSCRIBER = Record(Subscriber, {"stream": TEXT, "uuid": TEXT, "epoch": WHOLE}).codec()


def encode_subscriber(subscriber: Subscriber) -> bytes:
    return pack(_SUBSCRIBER.encode(subscriber))


def decode_subscriber(data: bytes, name: str) -> Subscriber:
    """The subscriber of these bytes; `name` is the object's, for errors.

    Raises `CorruptStateError` for damaged bytes, `IncompatibleStateError` for what a newer release wrote.
    """
    return unpack(data, name, _SUBSCRIBER.decode)


def consumed_by(manifest: Manifest, upstream: StreamUuid, begins: Epoch) -> Epoch:
    """How far the stream of this manifest has read the upstream: of several ways of reading it, the least far.

    In a way in which it has read nothing yet it begins at `begins`, however far it is in the others.
    """
    found = {each.epoch for each in consumed_in_each_way(manifest.sources) if each.uuid == upstream} or {EMPTY}
    return min(begins if epoch == EMPTY else epoch for epoch in found)
