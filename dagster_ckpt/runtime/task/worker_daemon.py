"""PySpark's daemon, which forks its worker processes, from the installed package and not from Spark's archive of it.

Spark puts `pyspark.zip` first on the path of its workers. Python keeps nothing of what it compiles of an archive, so
each start of a stream would compile PySpark again.

    python -m dagster_ckpt.runtime.task.worker_daemon pyspark.worker
"""

import sys
from collections.abc import Sequence
from pathlib import Path

_ARCHIVES = Path("pyspark", "python", "lib")
"""Where an installed PySpark has its archives, seen from the folder that it is installed in."""


def without_archives(path: Sequence[str]) -> list[str]:
    """Python's path without the archives of a PySpark that is on the path itself."""
    folders = {Path(each) for each in path if Path(each, "pyspark", "__init__.py").is_file()}
    archives = {folder / _ARCHIVES for folder in folders}
    return [each for each in path if not (each.endswith(".zip") and Path(each).parent in archives)]


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)

    from pyspark.daemon import manager

    manager()
