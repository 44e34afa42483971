"""The files of a micro-batch, where tasks read them by Arrow: in the order of Spark's own log of its source."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from dagster_ckpt.runtime.declared.sources import StreamSource
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import SparkCheckpoint
from dagster_ckpt.runtime.task.arrow_work import LeftToSparkError
from dagster_ckpt.runtime.task.file_scan import FileRange, FileScan

_LOG = logging.getLogger(__name__)

_LEFT_TO_SPARK = (
    "Spark reads the files of this run itself from here on, since Arrow might read one of them otherwise: its rows are "
    "the same, and epochs take longer. reason=%s, asset=%s"
)
_LOCAL = "file:"


@dataclass(frozen=True, slots=True)
class ScannedInput:
    """An input that reads files: the number of its step, its own among the step's, its source and what is read."""

    step: int
    number: int
    source: StreamSource
    scan: FileScan


@dataclass
class FilesByArrow:
    """The inputs of a run whose files Arrow reads, until it finds one that it leaves to Spark."""

    asset: str
    inputs: tuple[ScannedInput, ...]

    def leave(self, reason: LeftToSparkError) -> None:
        """Let Spark read all files of the run from here on."""
        _LOG.warning(_LEFT_TO_SPARK, reason, self.asset)
        self.inputs = ()


def files_to_scan(inputs: Sequence[ScannedInput], checkpoint: SparkCheckpoint, batch_id: int) -> list[FileRange]:
    """The files of a micro-batch, each as a whole. Raises `LeftToSparkError` where Spark has to read them."""
    return [_whole(each, address) for each in inputs for address in checkpoint.batch_files(each.source, batch_id)]


def _whole(of: ScannedInput, address: str) -> FileRange:
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
