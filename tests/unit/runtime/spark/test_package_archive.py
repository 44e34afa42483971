import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import dagster_ckpt
from dagster_ckpt.runtime.spark.package_archive import archive_name, pack, ship_package

PACKAGE = Path(dagster_ckpt.__file__).parent
OF_TASKS = (
    "dagster_ckpt.runtime.task.dataflow, dagster_ckpt.runtime.upstreams.upstream_source, "
    "dagster_ckpt.runtime.spark.batch_source"
)
LIBRARIES = {"numpy", "pyarrow", "pyspark", "py4j"}
"""What a Python of executors needs, with what Spark brings; s3fs for a store on S3."""


class FakeContext:
    """As much of a SparkContext as is used."""

    def __init__(self, folder: Path) -> None:
        self._temp_dir = str(folder)
        self._python_includes: list[str] = ["other.zip"]
        self.added: list[Path] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802  (Spark's name)
        self.added.append(Path(path))
        self._python_includes.append(Path(path).name)
        sys.path.insert(1, path)


def test_it_is_shipped_once_and_the_drivers_path_stays(tmp_path: Path) -> None:
    context: Any = FakeContext(tmp_path)
    path = list(sys.path)
    assert archive_name(context) is None
    ship_package(context)
    ship_package(context)
    [added] = context.added
    assert added.exists()
    assert archive_name(context) == added.name
    assert sys.path == path


@pytest.mark.parametrize(
    "theirs",
    ["dagster_ckpt-0.9.0.zip", "dagster_ckpt-functions-of-ours.zip"],
)
def test_the_drivers_package_is_shipped_beside_it(tmp_path: Path, theirs: str) -> None:
    context: Any = FakeContext(tmp_path)
    context._python_includes.append(theirs)
    ship_package(context)
    ship_package(context)
    [added] = context.added
    assert archive_name(context) == added.name != theirs


def test_executors_run_the_archive_whatever_they_have_installed_and_load_these_libraries_alone(tmp_path: Path) -> None:
    archive = pack(PACKAGE, tmp_path)
    assert [*tmp_path.iterdir()] == [archive]
    code = f"""if True:
        import sys
        sys.path.insert(1, {str(archive)!r})
        loaded = set(sys.modules)
        import {OF_TASKS}
        import dagster_ckpt
        print(dagster_ckpt.__file__)
        tops = {{name.partition(".")[0] for name in set(sys.modules) - loaded}} - sys.stdlib_module_names
        print(*sorted(name for name in tops if hasattr(sys.modules.get(name), "__path__")))
    """
    environment = {**os.environ, "PYTHONPATH": ""}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    file, names = ran.stdout.splitlines()
    assert Path(file).is_relative_to(archive)
    assert set(names.split()) <= {*LIBRARIES, "dagster_ckpt"}


def test_an_archive_is_passed_on_as_it_is(tmp_path: Path) -> None:
    wheel = tmp_path / "dagster_ckpt-1.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("dagster_ckpt/__init__.py", "")
    (tmp_path / "out").mkdir()
    copy = pack(wheel / "dagster_ckpt", tmp_path / "out")
    assert copy.suffix == ".zip"
    assert copy.read_bytes() == wheel.read_bytes()
