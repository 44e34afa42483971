"""What can be merged: chosen in `compaction`, carried out by `state`, entered into the run lists by `run_lists`."""

from dataclasses import dataclass

from dagster_ckpt.hash_range import HashRange


@dataclass(frozen=True, slots=True)
class SliceMerge:
    """Move all that the shards show of these hashes, upper runs and bottom alike, down into new bottom files.

    Nothing older is left there, so tombstones go. `rows` is about how many rows are read; `files` into how many files
    of about the same size they are to be written, so that none grows beyond the limit. `urgent`: it is more than an
    epoch's share, because there are far too many upper runs, and the intake of rows waits for it.
    """

    range: HashRange
    files: int
    rows: int
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class TierMerge:
    """Make the newest `runs` of `Levels.upper` one, the newest upper run. Older ones are left, so tombstones stay."""

    runs: int
