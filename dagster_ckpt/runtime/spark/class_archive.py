"""An archive of the classes that Spark's JVM loads while it starts, in Spark's folder.

A JVM that maps it into memory (class data sharing) does not find, parse and verify some twenty thousand classes again,
so a stream whose JVM has died restarts sooner. The JVM itself ignores an archive of another Java or of other jars.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from dagster_ckpt.errors import CheckpointError

FILE = "dagster-ckpt.jsa"
"""Below Spark's home: it is copied with that Spark, into an image too."""

JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with the Java options of a JVM that PySpark starts."""

_OF_ARCHIVES = ("-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit")
_QUIET = "-Xlog:cds*=off"
"""An archive that does not fit is not worth a line in a stream's log."""
_TRAINING_S_MAX = 600


def archive_path(environ: Mapping[str, str]) -> Path | None:
    """The path of the archive for the Spark that this environment starts; None where there is no Spark."""
    home = environ.get("SPARK_HOME")
    if home:
        return Path(home) / FILE
    found = importlib.util.find_spec("pyspark")
    folders = None if found is None else found.submodule_search_locations
    return Path(folders[0]) / FILE if folders else None


def use_archive(environ: MutableMapping[str, str]) -> None:
    """Make JVMs that Spark starts later use the archive, if there is one; the user's own comes first."""
    given = environ.get(JAVA_OPTIONS, "")
    if any(option in given for option in _OF_ARCHIVES):
        return  # before Python's path is searched for Spark: this runs for each asset definition
    archive = archive_path(environ)
    if archive is None or not archive.is_file():
        return
    environ[JAVA_OPTIONS] = " ".join([f'"-XX:SharedArchiveFile={archive}"', _QUIET, given]).strip()


def make_archive(environ: Mapping[str, str], archive: Path) -> None:
    """Run a small stream, for half a minute, with a JVM that archives its classes when it ends; replace the archive.

    A crash leaves the archive as it was, and perhaps a temporary file. Raises `CheckpointError` where Spark does not
    start, and where the folder cannot be written to.
    """
    unfinished = archive.with_name(f".{archive.name}.{os.getpid()}")
    try:
        unfinished.touch()  # fails at once: the JVM would only log the error, at its end
    except OSError as error:
        raise CheckpointError(
            "the archive of Spark's classes belongs in Spark's folder, which cannot be written to: run this as the "
            f"user who installed Spark, such as during an image build. folder={archive.parent}, error={error.strerror}"
        ) from error
    try:
        unfinished.unlink()
        _train({**environ, JAVA_OPTIONS: f'"-XX:ArchiveClassesAtExit={unfinished}" {_QUIET}'})
        if not unfinished.is_file():
            raise CheckpointError(
                "Java has written no archive of Spark's classes. It writes none where the classpath has a folder with "
                "files in it, such as Spark's conf. Streams run without it; to make it, set SPARK_CONF_DIR to an empty "
                "folder, and start streams with the same setting."
            )
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())  # half an archive would crash the JVM that maps it
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
        raise CheckpointError(f"Spark did not end in time. timeout_s={_TRAINING_S_MAX}") from error
    if done.returncode != 0:
        raise CheckpointError(f"Spark could not run a small stream:\n{done.stderr.strip()[-2000:]}")
