"""What a micro-batch has of each input that Arrow reads: by Spark's own log of its sources."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import SparkCheckpoint
from dagster_ckpt.runtime.task.arrow_work import LeftToSparkError
from dagster_ckpt.runtime.task.file_scan import FileRange, FileScan
from dagster_ckpt.runtime.task.scan import Piece
from dagster_ckpt.runtime.upstreams.log_scan import LogScan

_LOG = logging.getLogger(__name__)

_LEFT_TO_SPARK = (
    "Spark reads the rows of this run itself from here on, since Arrow might read some of them otherwise: they are the "
    "same, and epochs take longer. reason=%s, asset=%s"
)
_LOCAL = "file:"


@dataclass(frozen=True, slots=True)
class ScannedInput:
    """An input that reads a source: the number of its step, its own among the step's, its source and what is read.

    `relation` is the source in Spark's plan.
    """

    step: int
    number: int
    source: StreamSource
    scan: FileScan | LogScan
    relation: Any = field(repr=False)


@dataclass
class ArrowInputs:
    """The inputs of a run that Arrow reads, until it finds a file that it leaves to Spark."""

    asset: str
    inputs: tuple[ScannedInput, ...]

    def leave(self, reason: LeftToSparkError) -> None:
        """Let Spark read all inputs of the run from here on."""
        _LOG.warning(_LEFT_TO_SPARK, reason, self.asset)
        self.inputs = ()


def pieces_to_read(inputs: Sequence[ScannedInput], checkpoint: SparkCheckpoint, batch_id: int) -> list[Piece]:
    """What a micro-batch has, in pieces. Raises `LeftToSparkError` where Spark has to read it."""
    return [piece for each in inputs for piece in _pieces(each, checkpoint, batch_id)]


def _pieces(of: ScannedInput, checkpoint: SparkCheckpoint, batch_id: int) -> Iterator[Piece]:
    if isinstance(of.scan, LogScan):
        start, end = (checkpoint.offset(of.source, batch) for batch in (batch_id - 1, batch_id))
        if end is not None:
            yield from of.scan.pieces(of.step, of.number, start, end)
        return
    for address in checkpoint.batch_files(of.source, batch_id):
        yield _whole(of, address)


def _whole(of: ScannedInput, address: str) -> FileRange:
    """A file, if it is one that Arrow can read."""
    if not address.startswith(_LOCAL):
        raise LeftToSparkError("the files are in a store that only Spark is told how to reach")
    path = unquote(urlsplit(address).path)
    folder = os.path.dirname(path)  # noqa: PTH120  (a Path of each of many files takes longer than to read some)
    if "=" in folder:
        raise LeftToSparkError("a folder's name may have columns of its files")
    try:
        size = os.stat(path).st_size  # noqa: PTH116  (as above)
    except OSError as error:
        raise LeftToSparkError(str(error)) from None
    if size == 0:
        raise LeftToSparkError(f"a file is empty. file={path}")
    return FileRange(of.step, of.number, path, 0, size, size)
