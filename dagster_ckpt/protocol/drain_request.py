"""A request that a stream's writer ends cleanly at its next epoch. Advice only: it enforces nothing.

A request names the term it was made against. It applies to the writer that held the stream then, also in later terms
that this writer began by restarting its query, and to the Dagster run of that writer; to no writer after them. So a
writer that honours it need not delete it: a successor has a later term, and ignores the request.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.json_codec import CHECKSUM, COUNT, TEXT, WHOLE, Codec, Record, checksum_of
from dagster_ckpt.protocol.lease import LeaseHolder

DRAIN = "drain"
"""The name of the request. A stream has one such object; a new request overwrites it."""


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """`term` and `dagster_run_id` are those of the newest lease at the time of the request (no lease: an empty text).

    `time_ms` (milliseconds since the Unix epoch) and `host` are when and where it was made, for people.
    """

    term: Term
    dagster_run_id: str
    time_ms: int
    host: str

    def is_meant_for(self, first: Term, holder: LeaseHolder) -> bool:
        """Whether it applies to the writer whose first term this was. All terms from that to its newest are its own."""
        return self.term >= first or (self.dagster_run_id != "" and self.dagster_run_id == holder.dagster_run_id)


_FIELDS: Mapping[str, Codec[Any]] = {"term": COUNT, "dagster_run_id": TEXT, "time_ms": WHOLE, "host": TEXT}
_REQUEST = Record(DrainRequest, _FIELDS).codec()


def encode_drain(request: DrainRequest) -> bytes:
    """The bytes of a request: plain JSON, for people too."""
    fields = _REQUEST.encode(request)
    return json.dumps({**fields, CHECKSUM: checksum_of(fields)}, indent=1).encode()


def decode_drain(data: bytes) -> DrainRequest | None:
    """The request in these bytes; None if there is none or it is damaged: then no writer was asked to end.

    Ignores the fields of a newer release.
    """
    try:
        fields = json.loads(data)
        if fields.pop(CHECKSUM, None) != checksum_of(fields):
            return None
        return _REQUEST.decode({name: fields[name] for name in _FIELDS if name in fields})
    except (AttributeError, ValueError, TypeError, RecursionError):
        return None
