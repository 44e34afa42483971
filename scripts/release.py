"""Checks a release: `python scripts/release.py package dist` what was built, `ready` whether it may be published.

Both print each problem on a line with what to do, and exit with 1 if there is one.
"""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from packaging.version import Version

ROOT = Path(__file__).parents[1]
SECTION = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>\d{4}-\d\d-\d\d))?$", re.MULTILINE)
UNRELEASED = "Unreleased"
NO_SOURCE = """
Note: pyproject.toml has no [project.urls] Source, so the README's relative links are plain text on the index.
"""


# ------------------------------------------------------------------------------------------------------- what was built


def stray_and_missing(place: str, found: Sequence[str], expected: Sequence[str]) -> list[str]:
    """Problems of a package whose files are not those of git."""
    return [
        *(
            f"{place} has a file that git does not track: remove it or track it. file={name}"
            for name in found
            if name not in expected
        ),
        *(
            f"{place} lacks a file: see [tool.hatch.build.targets] in pyproject.toml. file={name}"
            for name in expected
            if name not in found
        ),
    ]


def wheel_problems(found: Sequence[str], tracked: Sequence[str], scripts: Mapping[str, str]) -> list[str]:
    """Problems of a wheel's files. `tracked` are git's files below the package, `scripts` the wheel's entry points."""
    package = [name for name in found if ".dist-info/" not in name]
    problems = stray_and_missing("the wheel", package, tracked)
    if "dagster_ckpt/py.typed" not in package:
        problems.append("the wheel lacks dagster_ckpt/py.typed: without it type checkers ignore our types")
    for name, target in scripts.items():
        module = target.partition(":")[0].replace(".", "/")
        if not {f"{module}.py", f"{module}/__init__.py"} & set(package):
            problems.append(f"an entry point names a module that the wheel lacks. entry_point={name}, target={target}")
    return problems


def description_problems(markdown: str) -> list[str]:
    """Links and images of a description that lead nowhere on a package index."""
    targets = [
        str(token.attrs.get("href") or token.attrs.get("src"))
        for block in MarkdownIt().parse(markdown)
        for token in block.children or ()
        if token.type in ("link_open", "image")
    ]
    relative = [target for target in targets if not re.match(r"https?://|mailto:|#", target)]
    return [f"the description has a relative link, which leads nowhere on an index. link={each}" for each in relative]


def package_problems(dist: Path, project: Mapping[str, Any], included: Sequence[str]) -> list[str]:
    """Problems of the sdist and the wheel in a folder. `included` are the paths that the sdist is made of."""
    wheels, sdists = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    if [len(wheels), len(sdists)] != [1, 1]:
        return [f"one wheel and one sdist are needed: empty the folder and build again. folder={dist}"]
    [wheel], [sdist] = wheels, sdists
    with zipfile.ZipFile(wheel) as archive:
        found = archive.namelist()
    [info] = {name.partition("/")[0] for name in found if ".dist-info/" in name}
    installed = PathDistribution(zipfile.Path(wheel, f"{info}/"))
    with tarfile.open(sdist) as archive_of_sources:
        sources = [member.name.partition("/")[2] for member in archive_of_sources if member.isfile()]
    problems = [
        *wheel_problems(found, tracked("dagster_ckpt"), {each.name: each.value for each in installed.entry_points}),
        # hatchling adds these two: the metadata, and what git ignores.
        *stray_and_missing("the sdist", sources, [*tracked(*included), "PKG-INFO", ".gitignore"]),
        *description_problems(installed.metadata["Description"]),
    ]
    if installed.version != project["version"]:
        problems.append(f"pyproject.toml has another version: build again. wheel={installed.version}")
    return problems


# ------------------------------------------------------------------------------------------ whether it may be published


def release_problems(version: str, changelog: str, tags: Sequence[str], status: str) -> list[str]:
    """What stands in the way of publishing this version. `status` is what `git status --porcelain` prints.

    Of a development version it says what the version that it leads to still lacks.
    """
    parsed = Version(version)
    final = parsed.base_version if parsed.is_devrelease else version
    problems = []
    if parsed.is_devrelease or parsed.local:
        problems.append(f'a development version: set `version = "{final}"` in pyproject.toml. version={version}')
    problems += [*newer_problems(final, changelog), *changelog_problems(final, changelog)]
    if f"v{final}" in tags:
        problems.append(f"this version has been tagged: choose the next one. tag=v{final}")
    if status.strip():
        problems.append("the checkout has changes that are not committed: commit them and build again")
    return problems


def newer_problems(version: str, changelog: str) -> list[str]:
    """Whether a version is newer than all others in CHANGELOG.md."""
    names = [match["version"] for match in SECTION.finditer(changelog)]
    newest = max((Version(name) for name in names if name not in (UNRELEASED, version)), default=Version("0"))
    return [] if Version(version) > newest else [f"not newer than the last release. version={version}, last={newest}"]


def changelog_problems(version: str, changelog: str) -> list[str]:
    """Problems of CHANGELOG.md for a release of this version."""
    sections = list(SECTION.finditer(changelog))
    ends = [*(match.start() for match in sections[1:]), len(changelog)]
    texts = {match["version"]: changelog[match.end() : end].strip() for match, end in zip(sections, ends, strict=True)}
    dates = {match["version"]: match["date"] for match in sections}
    problems = []
    if texts.get(UNRELEASED):
        problems.append(f"CHANGELOG.md has unreleased changes: make a section of them, `## [{version}] - YYYY-MM-DD`")
    if version not in texts:
        problems.append(f"CHANGELOG.md has no section of this version. version={version}")
    elif not texts[version] or not dates[version]:
        problems.append(f"the section of this version in CHANGELOG.md has no changes or no date. version={version}")
    return problems


def steps_left(version: str, *, has_source: bool) -> str:
    """What a person has to do, in order."""
    note = "" if has_source else NO_SOURCE
    return f"""{note}
Ready. What is left is yours to do, because it cannot be taken back:

    git tag --annotate v{version} --message 'dagster-ckpt {version}'
    git push origin v{version}
    .release/venv/bin/twine upload dist/*

Then set the next development version in pyproject.toml."""


# ----------------------------------------------------------------------------------------------------- the command line


def git(*words: str) -> str:
    """The output of git in this checkout."""
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def tracked(*paths: str) -> list[str]:
    """The files below these paths that git tracks."""
    return git("ls-files", "-z", *paths).split("\0")[:-1]


def main(words: Sequence[str]) -> int:
    """Print the problems; 1 if there are any."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    version, changelog = project["version"], (ROOT / "CHANGELOG.md").read_text()
    match words:
        case ["package", dist]:
            included = pyproject["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
            problems = package_problems(Path(dist), project, included)
            done = f"The packages in {dist} have what they should have, and no more."
        case ["ready"]:
            problems = release_problems(version, changelog, git("tag").split(), git("status", "--porcelain"))
            done = steps_left(version, has_source="Source" in project.get("urls", {}))
        case _:
            sys.exit("usage: release.py package FOLDER | release.py ready")
    print("\n".join(problems) if problems else done)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
