"""The product's modules, with a world's threads, processes and constants in the place of their own."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dagster_ckpt.history import swap
from dagster_ckpt.integration.recovery import sensor, stream_status
from dagster_ckpt.protocol import json_codec, lease
from dagster_ckpt.protocol.epochs import retention
from dagster_ckpt.protocol.manifest import packing
from dagster_ckpt.runtime.upstreams import upstreams
from dagster_ckpt.storage.chain import indexed_lists
from dagster_ckpt.storage.chain import manifest_chain as chain_module
from dagster_ckpt.storage.leases import heartbeat
from dagster_ckpt.storage.operations import manual_opening
from dagster_ckpt.storage.retention_refs import pins, subscribers
from dagster_ckpt.storage.stores import probe
from dagster_ckpt.storage.writer import opening
from dagster_ckpt.storage.writer import stream_writer as writer_module
from tests.simulation import decoded
from tests.simulation.deliveries.delivery_driver import patches
from tests.simulation.rebuilding import log_of_sums
from tests.simulation.resharding import person_in
from tests.simulation.sensor_daemon import InTurn

if TYPE_CHECKING:
    from tests.simulation.world import World


@contextmanager
def patched(world: "World") -> Iterator[None]:
    """The product's modules with the world's threads, processes and constants.

    Saves work that no check depends on: objects are decoded once, not compressed, and not formatted.
    """
    log = logging.getLogger("dagster_ckpt")
    level = log.level
    values: tuple[tuple[Any, str, object], ...] = (
        (chain_module, "decode_manifest", decoded.manifest),
        (chain_module, "decode_nonce", decoded.nonce),
        (heartbeat, "decode_lease", decoded.lease),
        (lease, "_FOR_PEOPLE", json_codec._CANONICAL),
        (packing, "COMPRESSION", 0),
        (pins, "decode_pin", decoded.a_pin),
        (retention, "MANIFESTS_KEPT", world.character.kept),
        (indexed_lists, "TAIL_MAX", world.character.tail_max),
        (indexed_lists, "MERGED", world.character.merged),
        (heartbeat, "threading", world.threads),
        (opening, "is_gone", world.is_gone),
        (stream_status, "is_gone", world.is_gone),
        (stream_status, "ManifestChain", world.patient_chain),
        (sensor, "ThreadPoolExecutor", InTurn),
        (manual_opening, "this_process", lambda: person_in(world.scheduler.this().process)),
        (probe, "_proved", set()),
        (probe, "threading", world.threads),
        (probe, "RACERS", 2),
        (probe, "ROUNDS", 1 if world.character.full else 0),
        (writer_module, "ManifestChain", world.patient_chain),
        (subscribers, "ManifestChain", world.patient_chain),
        (upstreams, "ManifestChain", world.patient_chain),
        (swap, "_change_log", log_of_sums),
    )
    values += tuple(each for stream in world.deliveries for each in patches(world, stream))
    before = [(where, name, getattr(where, name)) for where, name, _ in values]
    log.setLevel(logging.CRITICAL)
    try:
        for where, name, value in values:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)
        log.setLevel(level)
