import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "dagster_ckpt"


def named(package: Path) -> list[str]:
    """The names that begin the indented lines of a package's docstring."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    return [line.split()[0] for line in text.splitlines() if line.startswith("    ")]


PACKAGES = sorted(file.parent for file in PACKAGE.rglob("__init__.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(PACKAGE.parent)))
def test_each_module_is_named_once(package: Path) -> None:
    modules = [file.stem for file in package.glob("*.py") if file.stem != "__init__"]
    packages = [f"{file.parent.name}/" for file in package.glob("*/__init__.py")]
    assert sorted(named(package)) == sorted(modules + packages)
