"""CONTRIBUTING's walks lead through the code: each file is there, defines what is named, and is reached by imports."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
WALKS = dict(re.findall(r"\*\*(.+\?)\*\*.*\n\n((?:\d+\. .+\n)+)", PAGE))
STEP = re.compile(r"\d+\. \[`(.+?)`\]\((.+?)\): ((?:`[\w.]+`(?:, )?)+): .+")
FILES_MAX = {
    "How does a row get into the manifest?": 25,
    "How does an epoch get from the barrier to Dagster's event?": 12,
    "How is a table read?": 15,
    "How does an SQL text become steps?": 18,
    "What happens to a late row?": 10,
    "How is an aggregate added?": 10,
    "How is a destination added?": 10,
}


def test_there_are_seven_walks() -> None:
    assert list(WALKS) == list(FILES_MAX)


@pytest.mark.parametrize("question", FILES_MAX)
def test_a_walk_is_as_short_as_is_wanted(question: str) -> None:
    assert len(steps(question)) <= FILES_MAX[question]


@pytest.mark.parametrize("question", FILES_MAX)
def test_each_step_defines_what_the_walk_names(question: str) -> None:
    for path, names in steps(question):
        assert [name for name in names if not defines(path, name)] == [], path


@pytest.mark.parametrize("question", FILES_MAX)
def test_each_step_is_joined_to_an_earlier_one_by_an_import(question: str) -> None:
    """The caller imports what it calls; an implementation imports the protocol through which it is called."""
    paths = [path for path, _ in steps(question)]
    for number, path in enumerate(paths[1:], 1):
        joined = [each for each in paths[:number] if path in imports(each) or each in imports(path)]
        assert joined, f"no earlier step of the walk imports {path}, nor does it import one"


def test_each_path_to_touch_is_there() -> None:
    table = PAGE.partition("## To add something")[2].partition("\n## ")[0]
    paths = re.findall(r"`((?:\w+/)+(?:[\w.]+)?|[\w/]+\.(?:py|md|toml))`", table)
    assert paths
    missing = [path for path in paths if not ((ROOT / path).exists() or (ROOT / "dagster_ckpt" / path).exists())]
    assert missing == []


def steps(question: str) -> list[tuple[Path, list[str]]]:
    """The file of each step, below the checkout, and the names that the step has of it."""
    found = []
    for line in WALKS[question].splitlines():
        step = STEP.fullmatch(line)
        assert step is not None, line
        shown, path, names = step.groups()
        assert path == f"dagster_ckpt/{shown}"
        found.append((Path(path), re.findall(r"`([\w.]+)`", names)))
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text())


def defines(path: Path, name: str) -> bool:
    """Whether a module defines a name, or `Class.method`; a method may stand without its class."""
    *outer, last = name.split(".")
    for node in ast.walk(tree(path)):
        if outer and isinstance(node, ast.ClassDef) and node.name == outer[0]:
            return any(last in names_of(each) for each in node.body)
        if not outer and last in names_of(node):
            return True
    return False


def names_of(node: ast.AST) -> set[str]:
    """What a statement defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign():
            return {each.id for each in node.targets if isinstance(each, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


@cache
def imports(path: Path) -> frozenset[Path]:
    """The modules of ours that a module imports, through the `__init__` of their packages too."""
    found: set[Path] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("dagster_ckpt"):
            for alias in node.names:
                found |= modules_of(node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("dagster_ckpt."):
                    found |= modules_of(alias.name, "")
    return frozenset(found)


def modules_of(module: str, name: str) -> set[Path]:
    """The files from which `from module import name` takes the name."""
    base = Path(*module.split("."))
    for file in (base / f"{name}.py", base / name / "__init__.py", base.with_suffix(".py")):
        if name and (ROOT / file).exists():
            return {file}
    package = base / "__init__.py"
    if not (ROOT / package).exists():
        return {base.with_suffix(".py")}
    for node in ast.walk(tree(package)):
        if isinstance(node, ast.ImportFrom) and node.module not in {None, module}:
            names = {alias.asname or alias.name for alias in node.names}
            if name in names:
                return modules_of(str(node.module), name)
    return {package}
