import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.constraints import pins

CHECKOUT = Path(__file__).parents[2]
PINS = [line for line in (CHECKOUT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]


def test_a_report_of_pip_becomes_sorted_pins_without_ourselves() -> None:
    names = [("rich", "15.0"), ("dagster-ckpt", "0.1"), ("Jinja2", "3.1")]
    report = {"install": [{"metadata": {"name": name, "version": version}} for name, version in names]}
    assert pins(report) == ["Jinja2==3.1", "rich==15.0"]


def test_a_pin_is_a_name_and_a_version_and_no_address() -> None:
    assert [pin for pin in PINS if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", pin)] == []


def test_every_dependency_is_pinned_to_a_version_it_allows() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pinned = {canonicalize_name(name): version for name, _, version in (pin.partition("==") for pin in PINS)}
    for text in [*project["dependencies"], *(extra for each in extras.values() for extra in each)]:
        needed = Requirement(text)
        assert pinned[canonicalize_name(needed.name)] in needed.specifier
