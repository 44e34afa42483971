"""This package as one archive, which Spark brings to executors on other hosts.

So executors run the driver's release, whatever they have installed, and need only libraries: numpy and pyarrow, and
s3fs for a store on S3. Its modules are compiled: of an archive, each worker process would compile them again.
"""

import re
import shutil
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, PyZipFile, is_zipfile

if TYPE_CHECKING:
    from pyspark import SparkContext

PACKAGE = Path(__file__).parents[2]
"""The folder of this package; below an archive where Spark has brought it."""

_PREFIX = f"{PACKAGE.name}-"
_OURS = re.compile(rf"{_PREFIX}[0-9a-f]{{16}}\.zip")
"""A wheel, or an archive of a release, that the user ships has another name."""


def ship_package(context: "SparkContext") -> None:
    """Have Spark bring this package to all executors of the context, also to later ones; once per context."""
    if archive_name(context) is not None:
        return
    # Kept as long as the context: executors that start later fetch it from the driver.
    folder = tempfile.mkdtemp(dir=context._temp_dir)  # noqa: SLF001  (Spark removes it with the context)
    path = list(sys.path)
    try:
        context.addPyFile(str(pack(PACKAGE, Path(folder))))
    finally:
        sys.path[:] = path  # Spark adds it to the driver's path too, where the package is already


def archive_name(context: "SparkContext") -> str | None:
    """The file name of the archive that Spark brings to the context's executors; None: it brings none."""
    names = context._python_includes or ()  # noqa: SLF001  (Spark exposes it nowhere else)
    return next((name for name in names if _OURS.fullmatch(name)), None)


def pack(package: Path, folder: Path) -> Path:
    """The archive of the package, in `folder`. Its name has the hash of its content."""
    whole = folder / "package.zip"
    if is_zipfile(package.parent):
        shutil.copyfile(package.parent, whole)
    else:
        # A copy, because modules that are not compiled yet are compiled beside their source. Times stay, so that those
        # that are need not be.
        copy = Path(shutil.copytree(package, folder / package.name))
        with PyZipFile(str(whole), "w", ZIP_DEFLATED) as archive:
            archive.writepy(str(copy))
        shutil.rmtree(copy)
    name = f"{_PREFIX}{sha256(whole.read_bytes()).hexdigest()[:16]}.zip"
    return whole.rename(folder / name)
