"""An archive of the classes that Spark's JVM loads while it starts, beside the Spark that it is of.

A JVM that maps it into memory (class data sharing) does not find, parse and verify some twenty thousand classes again,
and a stream whose JVM has died is back sooner. The JVM itself refuses an archive that another Java or other jars have
made, and starts as it would without.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from dagster_ckpt.errors import CheckpointError

FILE = "dagster-ckpt.jsa"
"""Below Spark's home: it goes where that Spark goes, into an image too."""

_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
_OF_ARCHIVES = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit")
_QUIET = "-Xlog:cds*=off"
"""An archive that does not fit is no news to the reader of a stream's log."""
_TRAINING_S_MAX = 600


def archive_of(environ: Mapping[str, str]) -> Path | None:
    """Where the archive of the Spark lies that a process with this environment starts; None where there is no Spark."""
    home = environ.get("SPARK_HOME")
    if home:
        return Path(home) / FILE
    found = importlib.util.find_spec("pyspark")
    folders = None if found is None else found.submodule_search_locations
    return Path(folders[0]) / FILE if folders else None


def use_archive(environ: MutableMapping[str, str]) -> None:
    """Let a JVM of Spark that is started later use the archive, if there is one; the user's own comes first."""
    given = environ.get(_JAVA_OPTIONS, "")
    if any(option in given for option in _OF_ARCHIVES):
        return  # before Python's path is searched for Spark: each asset that is defined comes here
    archive = archive_of(environ)
    if archive is None or not archive.is_file():
        return
    environ[_JAVA_OPTIONS] = " ".join([f'"-XX:SharedArchiveFile={archive}"', _QUIET, given]).strip()


def make_archive(environ: Mapping[str, str], archive: Path) -> None:
    """Run a small stream with a JVM that writes down its classes when it ends, half a minute; replace the archive.

    A crash leaves the archive as it was, and perhaps a file beside it. Raises `CheckpointError` where Spark does not
    start, and where the folder cannot be written to.
    """
    unfinished = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        unfinished.touch()  # tells at once what the JVM would only say to its log, when all is done
    except OSError as error:
        raise CheckpointError(
            "the archive of Spark's classes lies beside Spark, and nothing can be written there: run this as the user "
            f"who installed Spark, such as while an image is built. folder={archive.parent}, error={error.strerror}"
        ) from error
    try:
        unfinished.unlink()
        _train({**environ, _JAVA_OPTIONS: f'"-XX:ArchiveClassesAtExit={unfinished}" {_QUIET}'})
        if not unfinished.is_file():
            raise CheckpointError(
                "Java has written no archive of Spark's classes. It writes none where the classpath has a folder with "
                "files in it, such as Spark's conf. Streams start as before: do without, or make it with a "
                "SPARK_CONF_DIR that is empty, and start streams with the same."
            )
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())  # half an archive would bring down the JVM that maps it
        unfinished.replace(archive)
    finally:
        unfinished.unlink(missing_ok=True)


def _train(environ: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "dagster_ckpt.runtime.class_training"]
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_TRAINING_S_MAX,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(f"Spark did not come to its end within {_TRAINING_S_MAX} s.") from error
    if done.returncode != 0:
        raise CheckpointError(f"Spark could not run a small stream:\n{done.stderr.strip()[-2000:]}")
