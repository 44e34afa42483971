"""What all tasks of a worker process share: open runs, threads, and the memory they may use."""

from dataclasses import dataclass, field

from dagster_ckpt.clock import Clock
from dagster_ckpt.lsm.compaction.compaction import CompactionLimits
from dagster_ckpt.state.io_pool import IoPool
from dagster_ckpt.state.memory_budget import MemoryBudget
from dagster_ckpt.state.open_runs import OpenRuns


@dataclass(frozen=True)
class Engine:
    """One per process; for `open_state`.

    `levels_max` is how many levels of runs one epoch may have: then they are merged, before look-ups get slow.
    """

    clock: Clock
    runs: OpenRuns = field(default_factory=OpenRuns)
    io: IoPool = field(default_factory=IoPool)
    budget: MemoryBudget = field(default_factory=lambda: MemoryBudget(256 * 1024 * 1024))
    limits: CompactionLimits = field(default_factory=CompactionLimits)
    levels_max: int = 16
