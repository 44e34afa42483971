import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import dagster_ckpt

CHECKOUT = Path(__file__).parents[2]
CODE_LOCATION = ("assets", "resources", "sensors", "definitions.py")
ALL_CODE = (*CODE_LOCATION, "dagster_ckpt", "demo", "scripts", "tests")


def imports(*places: str) -> Iterator[tuple[Path, str, str | None]]:
    """Every `from module import name` below these places, and `module, None` for every `import module`."""
    for place in places:
        path = CHECKOUT / place
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            for node in ast.walk(ast.parse(file.read_text())):
                match node:
                    case ast.Import(names):
                        yield from ((file, alias.name, None) for alias in names)
                    case ast.ImportFrom(module, names):
                        yield from ((file, module or "", alias.name) for alias in names)


def test_the_public_names_are_sorted() -> None:
    assert list(dagster_ckpt.__all__) == sorted(dagster_ckpt.__all__)


def test_type_checkers_see_the_names_that_are_loaded_lazily() -> None:
    seen = {
        (name, module) for _, module, name in imports("dagster_ckpt/__init__.py") if module.startswith("dagster_ckpt.")
    }
    assert seen == set(dagster_ckpt._HOMES.items())


@pytest.mark.dagster
@pytest.mark.parametrize("name", dagster_ckpt.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(dagster_ckpt, name) is not None


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Manager'"):
        getattr(dagster_ckpt, "Manager")  # noqa: B009  (written out, a type checker would refuse it: rightly)


@pytest.mark.parametrize(
    "module", ["dagster_ckpt", "dagster_ckpt.cli", "dagster_ckpt.history", "dagster_ckpt.operators"]
)
def test_importing_what_needs_neither_dagster_nor_spark_loads_neither(module: str) -> None:
    program = f"import sys, {module}; print({{'dagster', 'pyspark'}} & {{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_executors_do_not_load_dagster() -> None:
    program = "import sys, dagster_ckpt.runtime.task.epoch_task; print({'dagster', 'sqlglot'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.dagster
def test_only_streams_in_sql_load_their_parser() -> None:
    """It is an extra, and Dagster's tools load every public name."""
    program = "import sys; from dagster_ckpt import *; print('sqlglot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_wheel_holds_the_package_and_its_types_and_nothing_else(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(CHECKOUT)).build(directory=str(tmp_path), versions=["standard"])
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"dagster_ckpt"}
    assert "dagster_ckpt/py.typed" in names


def test_the_shipped_code_location_uses_only_public_names() -> None:
    ours = [entry for entry in imports(*CODE_LOCATION) if entry[1].startswith("dagster_ckpt")]
    assert ours, "the code location must use the plugin"
    assert [entry for entry in ours if entry[1] != "dagster_ckpt" or entry[2] not in dagster_ckpt.__all__] == []


def test_nothing_reaches_into_the_inside_of_dagster() -> None:
    inside = ("dagster._", "dagster_pyspark.", "dagster_shared")
    reached = {file.name for file, module, _ in imports(*ALL_CODE) if module.startswith(inside)}
    # There Dagster's own freshness daemon judges whether a quiet stream is fresh; nothing public does.
    assert reached == {"test_freshness.py", "test_quiet_stream_events.py"}
