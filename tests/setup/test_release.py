"""What `make package` and `make release` refuse."""

import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from scripts.index_readme import on_an_index
from scripts.release import (
    description_problems,
    package_problems,
    release_problems,
    steps_left,
    stray_and_missing,
    wheel_problems,
)

CHECKOUT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
INCLUDED = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
TRACKED = ["dagster_ckpt/__init__.py", "dagster_ckpt/cli/__init__.py", "dagster_ckpt/py.typed"]
INFO = "dagster_ckpt-1.0.dist-info/METADATA"
SCRIPTS = {"dagster-ckpt": "dagster_ckpt.cli:main"}
CHANGELOG = """# Changelog

## [Unreleased]

## [0.2.0] - 2026-12-01

### Added

- A.

## [0.1.0] - 2026-11-21

- B.
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    for builder in (SdistBuilder, WheelBuilder):
        list(builder(str(CHECKOUT)).build(directory=str(folder), versions=["standard"]))
    return folder


def test_the_packages_of_this_checkout_have_what_they_should_have(dist: Path) -> None:
    problems = package_problems(dist, PYPROJECT["project"], INCLUDED)
    # Where a file has just been written and git does not know it yet, that is all there may be.
    assert [each for each in problems if "git does not track" not in each] == []


def test_packages_of_another_version_are_old(dist: Path) -> None:
    [problem] = [each for each in package_problems(dist, {"version": "9.9"}, INCLUDED) if "another version" in each]
    assert f"wheel={PYPROJECT['project']['version']}" in problem


def test_a_file_that_a_package_lacks_is_named(dist: Path) -> None:
    problems = package_problems(dist, PYPROJECT["project"], [*INCLUDED, "SECURITY.md"])
    assert [each for each in problems if "SECURITY.md" in each and each.startswith("the sdist lacks a file")] != []


def test_a_folder_with_two_wheels_is_refused(tmp_path: Path) -> None:
    for name in ("a.whl", "b.whl", "a.tar.gz"):
        (tmp_path / name).touch()
    [problem] = package_problems(tmp_path, PYPROJECT["project"], INCLUDED)
    assert problem.startswith("one wheel and one sdist are needed")


def test_the_wheel_has_the_files_of_the_project_that_init_makes(dist: Path) -> None:
    [wheel] = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    template = "dagster_ckpt/cli/project/template"
    assert {f"{template}/{each.name}" for each in (CHECKOUT / template).iterdir() if each.is_file()} <= set(names)


def test_the_sdist_alone_builds_the_wheel(dist: Path, tmp_path: Path) -> None:
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
        archive.extractall(tmp_path)
    [source] = tmp_path.iterdir()
    (wheel,) = WheelBuilder(str(source)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    [direct] = dist.glob("*.whl")
    assert zipfile.ZipFile(wheel).namelist() == zipfile.ZipFile(direct).namelist()


def test_a_wheel_with_all_its_files_has_no_problem() -> None:
    assert wheel_problems([*TRACKED, INFO], TRACKED, SCRIPTS) == []


def test_a_test_in_the_wheel_is_stray() -> None:
    [problem] = wheel_problems([*TRACKED, INFO, "tests/test_a.py"], TRACKED, SCRIPTS)
    assert problem.endswith("file=tests/test_a.py")


def test_a_wheel_without_its_marker_of_types_is_refused() -> None:
    untyped = TRACKED[:2]
    [problem] = wheel_problems([*untyped, INFO], untyped, SCRIPTS)
    assert "py.typed" in problem


def test_an_entry_point_leads_to_a_module_of_the_wheel() -> None:
    [problem] = wheel_problems([*TRACKED, INFO], TRACKED, {"x": "dagster_ckpt.gone:main"})
    assert problem.endswith("entry_point=x, target=dagster_ckpt.gone:main")


def test_stray_and_missing_files_are_named_with_their_package() -> None:
    stray, missing = stray_and_missing("the sdist", ["a", "c"], ["a", "b"])
    assert stray.startswith("the sdist has a file that git does not track")
    assert stray.endswith("file=c")
    assert missing.endswith("file=b")


@pytest.mark.parametrize("text", ["[x](docs/x.md)", "![x](docs/x.svg)", "[![x](https://a/x.svg)](docs/x.md)"])
def test_a_relative_link_in_the_description_is_refused(text: str) -> None:
    [problem] = description_problems(f"# Title\n\n| a |\n|---|\n| b |\n\n- {text}\n")
    assert "docs/x" in problem


def test_links_in_code_and_absolute_links_are_not_refused() -> None:
    assert description_problems("[x](https://a) [y](#y)\n\n```python\nf[x](y)\n```\n") == []


# ---- the README on an index


README = """[a](docs/a.md "title"), [b](https://b), [c](#c), ![d](docs/d.svg)

```python
f[x](y)
```

[e](e.md#f)
"""


def test_without_an_address_relative_links_become_text_and_images_go() -> None:
    shown = on_an_index(README, None, "v1")
    assert shown == "a, [b](https://b), [c](#c), \n\n```python\nf[x](y)\n```\n\ne\n"


def test_with_an_address_relative_links_lead_to_the_tag_of_the_release() -> None:
    first, _, *code, last = on_an_index(README, "https://host/a/b/", "v1").splitlines()
    at = "https://host/a/b/blob/v1"
    assert first == f'[a]({at}/docs/a.md "title"), [b](https://b), [c](#c), ![d](https://host/a/b/raw/v1/docs/d.svg)'
    assert code == ["```python", "f[x](y)", "```", ""]
    assert last == f"[e]({at}/e.md#f)"


def test_the_readme_has_no_relative_link_on_an_index() -> None:
    readme = (CHECKOUT / "README.md").read_text()
    assert description_problems(readme) != []
    assert description_problems(on_an_index(readme, None, "v1")) == []
    assert description_problems(on_an_index(readme, "https://host/a/b", "v1")) == []


# ---- whether a version may be published


def test_a_dated_version_with_changes_is_ready() -> None:
    assert release_problems("0.2.0", CHANGELOG, ["v0.1.0"], "") == []


def test_a_development_version_is_refused_with_what_its_release_lacks() -> None:
    first, *others = release_problems("0.2.0.dev0", CHANGELOG, [], "")
    assert 'version = "0.2.0"' in first
    assert others == []
    assert any("no section" in each for each in release_problems("0.3.0.dev1", CHANGELOG, [], ""))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("## [Unreleased]\n", "## [Unreleased]\n\n- C.\n", "unreleased changes"),
        (" - 2026-12-01", "", "no changes or no date"),
        ("### Added\n\n- A.\n", "", "no changes or no date"),
        ("[0.2.0]", "[0.2.1]", "no section of this version"),
        ("[0.1.0]", "[0.2.0.post1]", "not newer than the last release"),
    ],
)
def test_a_changelog_that_does_not_fit_the_version_is_refused(old: str, new: str, problem: str) -> None:
    assert old in CHANGELOG
    assert any(problem in each for each in release_problems("0.2.0", CHANGELOG.replace(old, new), [], ""))


def test_a_tagged_version_and_a_changed_checkout_are_refused() -> None:
    tagged, changed = release_problems("0.2.0", CHANGELOG, ["v0.2.0"], " M README.md\n")
    assert tagged.endswith("tag=v0.2.0")
    assert "not committed" in changed


def test_the_steps_left_name_the_tag_and_say_where_links_are_text() -> None:
    assert "git push origin v0.2.0\n" in steps_left("0.2.0", has_source=True)
    assert "[project.urls] Source" not in steps_left("0.2.0", has_source=True)
    assert "[project.urls] Source" in steps_left("0.2.0", has_source=False)
