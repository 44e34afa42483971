"""What GitHub and pre-commit are told to run exists, and is what the Makefile and pyproject.toml say."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.versions import JAVAS, read_environments

CHECKOUT = Path(__file__).parents[2]
MAKEFILE = (CHECKOUT / "Makefile").read_text()
WORKFLOWS = sorted((CHECKOUT / ".github/workflows").glob("*.yml"))
FORMS = [path for path in (CHECKOUT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_target_that_a_workflow_makes_is_in_the_makefile(path: Path) -> None:
    text = path.read_text()
    targets = re.findall(r"make PYTHON=python ([a-z0-9-]+)", text)
    assert len(targets) == text.count("make ") > 0
    assert [target for target in targets if not re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)] == []


def test_pull_requests_are_checked_and_tested_on_every_python_that_the_package_allows() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    allowed = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    job = loaded(CHECKOUT / ".github/workflows/test.yml")["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == allowed
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == [f"make PYTHON=python {target}" for target in ("setup", "check", "test-kills", "test")]


def test_pull_requests_are_tested_on_every_other_version_that_the_package_allows() -> None:
    job = loaded(CHECKOUT / ".github/workflows/test.yml")["jobs"]["versions"]
    # All tests run on each Python, with what constraints.txt pins.
    others = [each.name for each in read_environments() if each.packages or each.replaced or each.java != JAVAS[0]]
    assert job["strategy"]["matrix"]["environment"] == others
    [java] = [step["with"]["java-version"] for step in job["steps"] if "setup-java" in step.get("uses", "")]
    assert sorted(java.split()) == list(JAVAS)


def test_each_pull_request_checks_the_packages() -> None:
    steps = loaded(CHECKOUT / ".github/workflows/test.yml")["jobs"]["package"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == ["make PYTHON=python package"]


def test_the_long_proofs_are_scheduled() -> None:
    workflow = loaded(CHECKOUT / ".github/workflows/proofs.yml")
    assert "schedule" in workflow[True], "YAML reads the key `on` as true"
    names = [each["name"] for each in workflow["jobs"]["prove"]["strategy"]["matrix"]["include"]]
    assert names == ["simulate", "chaos", "queries", "long", "memory", "fuzz", "mutants", "properties", "bench"]


def test_the_hooks_run_the_pinned_tools() -> None:
    [repository] = loaded(CHECKOUT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    programs = [hook["entry"].split()[0] for hook in repository["hooks"]]
    assert programs == [".venv/bin/ruff", ".venv/bin/ruff", ".venv/bin/mypy"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_what_github_asks_of_it(path: Path) -> None:
    form = loaded(path)
    assert {"name", "description", "body"} <= form.keys()
    ids = [each["id"] for each in form["body"] if each["type"] != "markdown"]
    assert len(set(ids)) == len(ids) > 0
