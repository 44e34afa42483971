"""Manifests, pins and leases decoded once each: they are values, and decoding them again and again takes time."""

from functools import lru_cache

from dagster_ckpt.ids import Nonce
from dagster_ckpt.protocol import lease as protocol_lease
from dagster_ckpt.protocol.epochs import pin
from dagster_ckpt.protocol.manifest import codec

lease = lru_cache(maxsize=256)(protocol_lease.decode_lease)
manifest = lru_cache(maxsize=1024)(codec.decode_manifest)
a_pin = lru_cache(maxsize=64)(pin.decode_pin)


def nonce(data: bytes, name: str) -> Nonce:
    """As `decode_nonce` reads it, which is quick only where nobody reads all of it too."""
    return manifest(data, name).nonce
