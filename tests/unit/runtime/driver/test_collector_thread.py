import logging
import threading
from uuid import uuid4

import pytest

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.ids import Term
from dagster_ckpt.protocol.object_names import COLLECTOR
from dagster_ckpt.runtime.driver.terms import CollectorThread
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.stores.memory import MemoryObjectStore
from dagster_ckpt.storage.writer.stream_writer import open_stream
from tests.worlds.streams import an_edit, an_opening

FOLDER = "flights.delay_by_carrier"
GRACE_MS = 3_600_000
FIRST_TERM = Term(1)


class Counting(MemoryObjectStore):
    """A store that signals when a pass lists it, and may refuse that."""

    def __init__(self, refuses: Exception | None = None) -> None:
        super().__init__(uuid4().hex)
        self.listed = threading.Event()
        self.refuses = refuses

    def list(self, prefix: str, after: str = ""):  # type: ignore[no-untyped-def]
        if prefix == FOLDER:
            self.listed.set()
            if self.refuses is not None:
                raise self.refuses
        return super().list(prefix, after)


def _one_pass(store: Counting, term: Term = FIRST_TERM) -> CollectorThread:
    clock = SystemClock()
    collector = Collector(ManifestChain(folder_store(store, FOLDER), clock), store, GRACE_MS)
    thread = CollectorThread(collector, clock, lambda: term)
    thread.begin()
    return thread


def test_the_first_pass_is_made_at_once() -> None:
    store = Counting()
    thread = _one_pass(store)
    assert store.listed.wait(10)
    thread.end()


def test_no_pass_is_made_shortly_after_that_of_another_process() -> None:
    store = Counting()
    folder_store(store, FOLDER).put(COLLECTOR, b"{}")
    thread = _one_pass(store)
    assert not store.listed.wait(0.3)
    thread.end()


def test_a_failed_pass_is_logged_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = Counting(refuses=RuntimeError("the disk is on fire"))
    with caplog.at_level(logging.WARNING):
        thread = _one_pass(store)
        assert store.listed.wait(10)
        thread.end()
    assert "garbage was not collected" in caplog.text
    assert "the disk is on fire" in caplog.text


def test_the_pass_is_made_as_the_writer_of_the_stream() -> None:
    root, clock = Counting(), SystemClock()
    store = folder_store(root, FOLDER)
    writer = open_stream(store, an_opening(), clock)
    writer.commit(an_edit(writer.manifest))
    left = "state/total/00000-of-00002/1-2-0-9.arrow"
    store.put_if_absent(left, b"what a failed attempt has left")
    thread = _one_pass(root, writer.term)
    assert root.listed.wait(10)
    thread.end()
    writer.close("the test is over")
    assert not store.exists(left)
