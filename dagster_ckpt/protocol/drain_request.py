"""A request that a stream's writer ends cleanly at its next epoch. Advice only: it stops nobody, it asks.

A request names the term it was made against. It is meant for the writer that held the stream then, whatever terms that
one has begun since by restarting its query, and for the Dagster run that this writer belongs to; for nobody after them.
So who honours it need not take it away: a successor has a later term, and the request says nothing to it.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.json_codec import COUNT, TEXT, WHOLE, Codec, Record
from dagster_ckpt.protocol.lease import LeaseHolder

DRAIN = "drain"
"""The name of the request. There is one object a stream; the newest request is written over the one before."""


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """`term` and `dagster_run_id` are those of the newest lease when it was asked (no lease, no run: an empty text).

    `time_ms` and `host` say when and where, for people (milliseconds since the Unix epoch).
    """

    term: Term
    dagster_run_id: str
    time_ms: int
    host: str

    def is_meant_for(self, first: Term, holder: LeaseHolder) -> bool:
        """Whether it asks the writer whose first term this was to end. Between that and its newest all are its own."""
        return self.term >= first or (self.dagster_run_id != "" and self.dagster_run_id == holder.dagster_run_id)


_FIELDS: Mapping[str, Codec[Any]] = {"term": COUNT, "dagster_run_id": TEXT, "time_ms": WHOLE, "host": TEXT}
_REQUEST = Record(DrainRequest, _FIELDS).codec()
_CHECKSUM = "checksum"


def encode_drain(request: DrainRequest) -> bytes:
    """The bytes of a request: plain JSON, for people too."""
    fields = _REQUEST.encode(request)
    return json.dumps({**fields, _CHECKSUM: _checksum(fields)}, indent=1).encode()


def decode_drain(data: bytes) -> DrainRequest | None:
    """The request of these bytes; None where they are none or damaged: then nobody was asked.

    Fields of a newer release are passed over.
    """
    try:
        fields = json.loads(data)
        if fields.pop(_CHECKSUM, None) != _checksum(fields):
            return None
        return _REQUEST.decode({name: fields[name] for name in _FIELDS if name in fields})
    except (AttributeError, ValueError, TypeError, RecursionError):
        return None


def _checksum(fields: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(fields, sort_keys=True, separators=(',', ':')).encode()):08x}"
