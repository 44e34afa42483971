"""What `make check` finds in the site's pages, and that the reference leaves nothing out."""

import ast
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dagster_ckpt
from dagster_ckpt import CheckpointStore, ProcessFunction, Snapshot, Stream, StreamHistory, agg, over, testing

ROOT = Path(__file__).parents[2]
API = {page.stem: page.read_text() for page in (ROOT / "docs/reference/api").glob("*.md")}
CHECK = (ROOT / "scripts/check.sh").read_text()
COMMAND = next(line.partition("||")[0] for line in CHECK.splitlines() if "sphinx" in line)

FOR_THE_INTEGRATION = {
    StreamHistory: {
        *("epochs_after", "find_version", "info_shown", "is_far", "late_rows_shown", "manifest"),
        *("pinned_manifests", "read_shown"),
    },
    Snapshot: {"manifest"},
    Stream: {"all_ignored_watermarks", "code", "flushes", "inputs", "with_mirror", "sources", "steps", "updating"},
}
"""Public for the other layers, not for users."""


def build(folder: Path, index: str, **others: str) -> subprocess.CompletedProcess[str]:
    """Build a site of these pages as `make check` does. The navigation has `overview` and `glossary`."""
    pytest.importorskip("sphinx", reason="the site needs dagster-ckpt[docs]")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("*.md", "benchmarks"))
    pages = {"overview": "# A page\n\n## A heading\n", "glossary": "# A page\n", **others}
    pages["index"] = f"# The site\n\n```{{toctree}}\noverview\nglossary\n```\n\n{index}\n"
    for name, text in pages.items():
        (folder / f"docs/{name}.md").write_text(text)
    words = [sys.executable, *shlex.split(COMMAND)[1:]]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def test_a_site_without_a_fault_is_built(tmp_path: Path) -> None:
    ran = build(tmp_path, "[a](glossary.md) [b](overview.md#a-heading) ![c](images/benchmarks.svg)")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_each_broken_link_fails_the_check_and_is_named(tmp_path: Path) -> None:
    broken = ["no-page.md", "overview.md#no-heading", "#no-heading-here", "../no-file.py"]
    ran = build(tmp_path, " ".join(f"[text]({target})" for target in broken) + " ![image](images/no-image.svg)")
    assert ran.returncode != 0
    assert [each for each in [*broken, "no-image.svg"] if f"{each.rpartition('#')[2]}" not in ran.stderr] == []


def test_a_page_that_the_navigation_leaves_out_fails_the_check(tmp_path: Path) -> None:
    ran = build(tmp_path, "[a](alone.md)", alone="# Alone\n")
    assert ran.returncode != 0
    assert "alone.md" in ran.stderr


def documented() -> list[str]:
    """The full name of each object that the API pages have, in order."""
    names = []
    for page in API.values():
        module = ""
        holder = ""
        for line in page.splitlines():
            if found := re.match(r"( *)\.\. (\w+):: ([\w.]+)", line):
                indent, directive, name = found.groups()
                if directive == "currentmodule":
                    module = name
                elif directive.startswith("auto"):
                    full = (
                        f"{holder}.{name}"
                        if indent
                        else name
                        if name.startswith("dagster_ckpt.")
                        else f"{module}.{name}"
                    )
                    names.append(full)
                    holder = holder if indent else full
            elif found := re.match(r"   :members: *(.*)", line):
                names += [f"{holder}.{name.strip()}" for name in found[1].split(",") if name]
    return names


def public(kind: type) -> set[str]:
    """The methods and properties of a class for users."""
    found = {name for name, each in vars(kind).items() if inspect.isfunction(each) or isinstance(each, property)}
    return {name for name in found if not name.startswith("_")} - FOR_THE_INTEGRATION.get(kind, set())


def test_every_public_name_is_in_the_reference_once() -> None:
    names = documented()
    functions = {
        f"{module.__name__.rpartition('.')[2]}.{name}"
        for module in (agg, over)
        for name, each in vars(module).items()
        if inspect.isfunction(each) and each.__module__ == module.__name__ and not name.startswith("_")
    }
    expected = {f"dagster_ckpt.{name}" for name in {*dagster_ckpt.__all__, *functions} - {"agg", "over"}}
    expected |= {f"dagster_ckpt.testing.{name}" for name in testing.__all__}
    assert expected - {*names} == set()
    assert sorted(name for name in {*names} if names.count(name) > 1) == []


@pytest.mark.parametrize(
    "kind", [CheckpointStore, StreamHistory, Snapshot, Stream, ProcessFunction], ids=lambda kind: kind.__name__
)
def test_every_method_for_users_is_in_the_reference(kind: type) -> None:
    shown = {name.rpartition(".")[2] for name in documented() if f".{kind.__name__}." in name}
    assert shown == public(kind)


@pytest.mark.parametrize("name", documented())
def test_an_example_in_a_docstring_is_python(name: str) -> None:
    """The lines that a docstring indents by four after a paragraph; the site shows them as Python."""
    found: object = dagster_ckpt
    for part in name.removeprefix("dagster_ckpt.").split("."):
        found = getattr(found, part)
    text = inspect.getdoc(found) or ""
    assert text, "the reference shows the docstring"
    for example in re.findall(r"(?:(?<=\n\n)|^)((?: {4}.*\n|\n(?= {4}))+)", text + "\n"):
        ast.parse(inspect.cleandoc("\n" + example))
