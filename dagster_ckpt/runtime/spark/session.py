"""Spark's settings: the user's, those of a stream's session, and those that the context was started with."""

import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.runtime.spark.class_archive import use_archive
from dagster_ckpt.runtime.spark.jvm import java_class
from dagster_ckpt.runtime.spark.package_archive import ship_package
from dagster_ckpt.runtime.spark.process_folder import SOCKETS, note_elsewhere, process_folder, use_process_folder
from dagster_ckpt.runtime.spark.scratch_files import PLAIN_FILES, SPARKS_OWN, scratch_files
from dagster_ckpt.storage.stores.address import is_local_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOG = logging.getLogger(__name__)

NEEDED = {
    # A map stage that Spark runs again could give late shards other rows than it gave the early ones. So one lost
    # shuffle fails the whole job, and with it the epoch.
    "spark.stage.maxConsecutiveAttempts": "1",
    # By default Spark does not count an attempt that lost a shuffle with a decommissioned executor.
    "spark.stage.ignoreDecommissionFetchFailure": "false",
}
"""Settings that a context must be started with."""
_ANNOUNCED = {
    **NEEDED,
    # Executors that a process of this host starts would inherit it, and make their sockets in a folder of all users.
    f"spark.executorEnv.{SOCKETS}": "false",
}
_WORKERS = {
    # One thread can reuse memory that another has freed: else glibc keeps a heap for each, beyond `memory_limit`.
    "MALLOC_ARENA_MAX": "1",
}
_SESSION = {
    # Adaptive execution would merge small partitions: a shard's task must run even without rows.
    "spark.sql.adaptive.enabled": "false",
    # A file source's log is never compacted in the life of a scratch folder: the manifest has what it has seen.
    "spark.sql.streaming.fileSource.log.compactInterval": "1000000",
    # So there is nothing to delete, for which Spark would list all of the log in every micro-batch.
    "spark.sql.streaming.fileSource.log.deletion": "false",
    # Parquet skips rows of -0.0 where a filter asks for 0.0, if the column has a dictionary. A row would be lost whose
    # delete is read later.
    "parquet.filter.dictionary.enabled": "false",
}
"""Settings of a stream's session that override the user's: none changes a value that a query computes."""
_CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
_OTHERS, _OTHERS_WRITE = 0o077, 0o022
"""Bits of a mode, for group and others: a folder that can be entered, and a socket that can be connected to."""
_SEPARATOR = "\0"
"""It is in no setting."""
_EXCLUDED = "spark.sql.optimizer.excludedRules"
_DAEMON = "spark.python.daemon.module"
_PRUNING = tuple(
    f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in ("PropagateEmptyRelation", "PruneFilters")
)
"""Rules that would leave out a step, and its shards' tasks, where its sources have nothing new or a filter is false."""


def announce_settings(environ: MutableMapping[str, str]) -> None:
    """Write the settings that a context must be started with into `PYSPARK_SUBMIT_ARGS`, for a JVM that starts later.

    The user's Spark configuration overrides them. No effect once Spark runs. `SPARK_SUBMIT_OPTS` gets the JVM's
    temporary folder, and the archive of Spark's classes if there is one.
    """
    given = environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    missing = [f"--conf {name}={value}" for name, value in _ANNOUNCED.items() if name not in given]
    environ["PYSPARK_SUBMIT_ARGS"] = " ".join([*missing, given])
    use_process_folder(environ)
    use_archive(environ)


@contextmanager
def own_interrupts() -> Iterator[None]:
    """Keep this process's SIGINT handler while a Spark context may start within.

    Spark's handler cancels every job of the process, and so would cancel the epoch that an interrupted stream wants to
    finish. Outside the main thread Spark sets none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None:  # None: not set from Python, so Python cannot restore it
            signal.signal(signal.SIGINT, handler)


def open_session(spark: "SparkSession") -> "SparkSession":
    """A new session of the same context for one stream: with the user's settings and those that streams need.

    So time zone, ANSI mode, case sensitivity and all else are as in the user's queries. Raises `InvalidPipelineError`
    for a Spark Connect session, and for a context that was started without the settings in `NEEDED`.
    """
    from dagster_ckpt.runtime.spark.no_max_file_age_session import NoMaxFileAgeSession

    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidPipelineError(
            "a stream runs in the process of its Spark driver: give it a classic SparkSession, such as "
            f"dagster-pyspark's PySparkResource makes; Spark Connect cannot run one. session={type(spark).__module__}"
        )
    context = spark.sparkContext
    settings = context.getConf()
    wrong = {name: value for name, value in NEEDED.items() if settings.get(name, None) != value}
    if wrong:
        needed = " and ".join(f"{name}={value}" for name, value in wrong.items())
        raise InvalidPipelineError(
            f"Spark was started without settings that streams need and that cannot be changed while it runs: "
            f"add {needed} to its spark_config, or, where you build the session yourself, to the builder. "
            f"found={', '.join(str(settings.get(name, None)) for name in wrong)}"
        )
    _check_sockets(context)
    _note_folders(spark)
    use_own_python(spark)
    _use_own_daemon(spark)
    if not is_local(spark):
        ship_package(context)
    for name, value in _WORKERS.items():
        context.environment.setdefault(name, value)  # a spark.executorEnv that the user has set stays
    session = NoMaxFileAgeSession(context, spark._jsparkSession.newSession())  # noqa: SLF001  (as newSession() does)
    _take_over(spark, session)
    for name, value in _SESSION.items():
        session.conf.set(name, value)
    session.conf.set(_CHECKPOINT_FILES, scratch_files(session))
    session.conf.set(_EXCLUDED, ",".join(dict.fromkeys([*_excluded_rules(session), *_PRUNING])))
    return session


def session_id(session: "SparkSession") -> str:
    """What identifies a session in the JVM, for which Python may have several objects."""
    own: Any = session
    return str(own._jsparkSession.sessionUUID())  # noqa: SLF001  (Spark's identity of a session)


def _check_sockets(context: Any) -> None:
    """Raise `InvalidPipelineError` where other users can connect to Spark's sockets: a task is code, as a pickle.

    All of this host's sockets are in the folder of this one, with the same modes. TCP connections show a secret.
    """
    address = context._accumulatorServer.server_address  # noqa: SLF001  (Spark exposes it nowhere else)
    if not isinstance(address, str):
        _LOG.info(
            "each wave of Python tasks takes some 40 ms longer, since Spark connects to them by TCP: it makes sockets "
            "in a private folder where neither java.io.tmpdir nor %s is set, and the path of TMPDIR is short",
            SOCKETS,
        )
        return
    folder = Path(address).parent
    if stat.S_IMODE(folder.stat().st_mode) & _OTHERS and Path(address).stat().st_mode & _OTHERS_WRITE:
        raise InvalidPipelineError(
            "other users can connect to the sockets by which Spark gives tasks to Python, and so run code as this "
            "user: set neither java.io.tmpdir nor spark.python.unix.domain.socket.dir, or a folder of mode 0700. "
            f"folder={folder}"
        )


def _note_folders(spark: "SparkSession") -> None:
    """Have what Spark's JVM keeps in `spark.local.dir` removed by a later start, should it be killed."""
    folder = Path(str(spark.sparkContext._temp_dir)).parent  # noqa: SLF001  (as above)
    if folder.parent == process_folder():
        return
    disk: Any = java_class(spark, "org.apache.spark.SparkEnv").get().blockManager().diskBlockManager()
    note_elsewhere([folder, *(Path(str(each.getPath())) for each in disk.localDirs())])


def _excluded_rules(session: "SparkSession") -> list[str]:
    """The optimizer rules that the session excludes."""
    return [rule for each in (session.conf.get(_EXCLUDED, None) or "").split(",") if (rule := each.strip())]


def _take_over(spark: "SparkSession", session: "SparkSession") -> None:
    """Copy to a new session what was set and unset on the user's since Spark started: Spark does not."""
    given, has = _settings(spark), _settings(session)
    # As a builder does: `session.conf` refuses the context's settings, which a builder may have set on a session.
    settings: Any = session._jsparkSession.sessionState().conf()  # noqa: SLF001  (Spark exposes it nowhere else)
    for name in has.keys() - given.keys():
        settings.unsetConf(name)
    for name, value in given.items():
        if has.get(name) != value:
            settings.setConfString(name, value)


def _settings(session: "SparkSession") -> dict[str, str]:
    """`session.conf.getAll` in one call: PySpark makes hundreds, most of them to find that the map has ended."""
    settings: Any = session._jsparkSession.conf()  # noqa: SLF001  (Spark exposes it nowhere else)
    pairs = str(settings.getAll().mkString(_SEPARATOR)).split(_SEPARATOR)
    return {name: value for name, arrow, value in (pair.partition(" -> ") for pair in pairs) if arrow}


def use_own_python(spark: "SparkSession") -> None:
    """Make Spark's Python workers on this host use this process's Python.

    Spark would take the first python3 of PATH. PYSPARK_PYTHON takes precedence.
    """
    if is_local(spark) and "PYSPARK_PYTHON" not in os.environ:
        spark.sparkContext.pythonExec = sys.executable


def _use_own_daemon(spark: "SparkSession") -> None:
    """Make Spark's Python workers on this host start from the installed PySpark: see `worker_daemon`.

    On other hosts its module may come with the first task only. One that the user has set stays.
    """
    if not is_local(spark):
        return
    context: Any = spark.sparkContext
    settings = context._jsc.sc().conf()  # noqa: SLF001  (`getConf` gives a copy)
    if not settings.contains(_DAEMON):
        settings.set(_DAEMON, "dagster_ckpt.runtime.task.worker_daemon")


def is_session_of_a_stream(session: "SparkSession") -> bool:
    """Whether `open_session` made this session and its settings are still the same."""
    as_set = all(session.conf.get(name, None) == value for name, value in _SESSION.items())
    files_as_set = session.conf.get(_CHECKPOINT_FILES, None) in (PLAIN_FILES, SPARKS_OWN)
    return as_set and files_as_set and set(_PRUNING) <= set(_excluded_rules(session))


@contextmanager
def as_active(session: "SparkSession") -> Iterator[None]:
    """Within it the session is the active one of this thread.

    Spark looks up a Python data source in the active session, whichever session reads.
    """
    sessions: Any = session._get_j_spark_session_class(session._jvm)  # noqa: SLF001  (Spark exposes it nowhere else)
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)  # noqa: SLF001
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def is_local(session: "SparkSession") -> bool:
    """Whether all of Spark runs on this host, in one JVM."""
    return is_local_master(str(session.sparkContext.master))


def ping(session: "SparkSession") -> None:
    """Return once the session's JVM answers. Raises Py4J's error where it does not."""
    session.sparkContext._jsc.sc().startTime()  # noqa: SLF001  (any call will do)


def is_alive(session: "SparkSession") -> bool:
    """Whether the session's JVM still answers."""
    from py4j.protocol import Py4JError

    try:
        ping(session)
    except (Py4JError, ConnectionError):
        return False
    return True


_EXECUTORS_MAX = 2**31 - 1
"""Spark's default for `spark.dynamicAllocation.maxExecutors`."""


def task_slots(session: "SparkSession") -> int:
    """The slots of all executors that the application is allowed, running or not."""
    context = session.sparkContext
    return slots_allowed(dict(context.getConf().getAll()), context.defaultParallelism)


def slots_allowed(conf: Mapping[str, str], slots_now: int) -> int:
    """The slots that an application's settings allow, at least `slots_now`.

    Dynamic allocation adds executors only while tasks wait; without it they register after the start. A number of tasks
    that followed the running executors would keep a stream as small as it began.
    """
    if "spark.default.parallelism" in conf or is_local_master(conf.get("spark.master", "")):
        return slots_now
    cores_of_a_task = int(conf.get("spark.task.cpus", "1"))
    slots_of_an_executor = max(1, int(conf.get("spark.executor.cores", "1")) // cores_of_a_task)
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        slots = int(conf.get("spark.dynamicAllocation.maxExecutors", _EXECUTORS_MAX)) * slots_of_an_executor
        slots = min(slots, int(conf.get("spark.cores.max", _EXECUTORS_MAX)) // cores_of_a_task)
    else:
        slots = int(conf.get("spark.executor.instances", "0")) * slots_of_an_executor
        slots = max(slots, int(conf.get("spark.cores.max", "0")) // cores_of_a_task)
    return max(slots, slots_now)
