"""The kinds of merges: chosen by `compaction`, carried out by `state`, entered into the run lists by `run_lists`."""

from dataclasses import dataclass

from dagster_ckpt.hash_range import HashRange


@dataclass(frozen=True, slots=True)
class SliceMerge:
    """Move all rows of these hashes that the shards show, upper runs and bottom alike, down into new bottom files.

    Nothing older is left there, so tombstones are dropped. `rows` is about how many rows are read; `files` the number
    of files to write, of about equal size, so that none exceeds the limit. `urgent`: it is more than an epoch's share,
    because there are far too many upper runs, and the intake of rows waits for it.
    """

    range: HashRange
    files: int
    rows: int
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class TierMerge:
    """Merge the newest `runs` of `Levels.upper` into one, the newest upper run. Older runs remain: tombstones stay."""

    runs: int
