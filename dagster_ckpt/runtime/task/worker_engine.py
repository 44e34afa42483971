"""The state engine of a worker process: shared by its tasks, created on first use."""

import gc
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from dagster_ckpt.clock import SystemClock
from dagster_ckpt.state.engine import Engine, OpenRuns
from dagster_ckpt.state.io_pool import IoPool
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.remote.private_folder import refuse_unsafe
from dagster_ckpt.state.remote.remote_bytes import spread_over
from dagster_ckpt.state.remote.run_cache import SETTING, RunCache, default_folder
from dagster_ckpt.storage.stores.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Where a worker caches the runs of remote stores on its local disk (None: below its temporary folder)."""

    folder: str | None = None
    limit_bytes: int = 4 * 1024**3

    @property
    def path(self) -> Path:
        """The folder."""
        return default_folder() if self.folder is None else Path(self.folder)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """A worker process's limits: memory, threads that write and threads that read, and its cache.

    A write or read that takes longer than `timeout_ms` is given up, like an epoch.
    Without a cache, blocks of a remote store are held in memory while they are used.
    """

    memory_limit_bytes: int = 256 * 1024**2
    io_threads: int = 4
    cache: CacheOptions | None = CacheOptions()
    timeout_ms: int = 600_000


def check_cache(options: EngineOptions, store: ObjectStore) -> None:
    """Raise `InvalidPipelineError` for a cache folder that another user owns, where `store` needs a cache.

    Called in the driver; a worker on another host checks for itself. A folder that cannot be used is not refused.
    """
    if options.cache is not None and store.local_path("state") is None:
        refuse_unsafe(options.cache.path, SETTING)


@dataclass(frozen=True)
class _ProcessEngine:
    process: int
    options: EngineOptions
    engine: Engine


_kept: dict[bool, _ProcessEngine] = {}
"""The newest engine for local stores (True) and for remote ones (False)."""


def process_engine(options: EngineOptions, store: ObjectStore) -> Engine:
    """This process's engine for streams in `store`. A forked child gets a new one: it inherits no thread.

    A process runs one task at a time. Where streams with other options alternate in it, its runs stay open unless the
    cache or the number of threads differs.
    """
    is_local = store.local_path("state") is not None
    if is_local:
        options = replace(options, cache=None)  # its runs are on this disk already
    kept = _kept.get(is_local)
    if kept is None or kept.process != os.getpid():
        kept = _ProcessEngine(os.getpid(), options, _engine(options, _open_runs(options)))
    elif kept.options != options:
        is_read_alike = is_local or (kept.options.cache, kept.options.io_threads) == (options.cache, options.io_threads)
        runs = kept.engine.runs if is_read_alike else _open_runs(options)
        kept = _ProcessEngine(kept.process, options, _engine(options, runs))
    _kept[is_local] = kept
    return kept.engine


@cache
def exempt_from_gc() -> None:
    """Exempt all objects there are from garbage collection, the first time in a process: most are of modules.

    PySpark's worker runs a full collection after each task, before it takes the next one. With all modules that takes
    40 ms, for which the task of the next step waits.
    """
    gc.collect()
    gc.freeze()


def _open_runs(options: EngineOptions) -> OpenRuns:
    cache = None if options.cache is None else RunCache(options.cache.path, options.cache.limit_bytes)
    return OpenRuns(cache=cache, spread=spread_over(_pool(options)))


def _engine(options: EngineOptions, runs: OpenRuns) -> Engine:
    return Engine(SystemClock(), runs, _pool(options), MemoryBudget(options.memory_limit_bytes))


def _pool(options: EngineOptions) -> IoPool:
    return IoPool(options.io_threads, timeout_ms=options.timeout_ms)
