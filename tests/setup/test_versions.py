"""Which versions `make versions` runs, and how it counts what came of them."""

import re
from pathlib import Path

import pytest

from scripts import versions
from scripts.test import FAST, FULL, STREAM, chosen
from scripts.versions import FAILED, JAVAS, NOT_RUN, PASSED, Environment, Result, closing_line

CHECKOUT = Path(__file__).parents[2]
PINS = ["dagster==1.13.27", "dagster-pyspark==0.29.27", "py4j==0.10.9.9", "pyspark==4.2.1", "rich==15.0.0"]
DECLARED = {
    "classifiers": [
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{n}" for n in (11, 12)),
    ],
    "dependencies": ["dagster>=1.13,<2", "dagster-pyspark>=0.29,<1", "pyspark>=4.1,<4.4"],
}


def environment(name: str) -> Environment:
    return {each.name: each for each in versions.environments(DECLARED, PINS)}[name]


def test_each_environment_is_the_base_with_one_thing_changed() -> None:
    found = versions.environments(DECLARED, PINS)
    dagsters, sparks = ["dagster-oldest", "dagster-newest"], ["spark-oldest", "spark-4.1", "spark-4.3"]
    assert [each.name for each in found] == ["base", "python-3.12", *dagsters, *sparks, "java-21"]
    base = found[0]
    for each in found[1:]:
        changed = [each.python != base.python, each.java != base.java, each.replaced != base.replaced]
        assert changed.count(True) == 1, each


def test_the_oldest_dagster_is_the_lower_bound() -> None:
    assert environment("dagster-oldest").packages == ("dagster==1.13", "dagster-pyspark==0.29")


def test_the_oldest_spark_is_the_lower_bound() -> None:
    assert environment("spark-oldest").packages == ("pyspark==4.1",)


def test_a_changed_package_loses_its_pins_and_no_other_does() -> None:
    assert versions.kept_pins(environment("base"), PINS) == PINS
    assert versions.kept_pins(environment("spark-4.1"), PINS) == [PINS[0], PINS[1], PINS[4]]
    assert versions.kept_pins(environment("dagster-newest"), PINS) == PINS[2:]


def test_the_lines_of_spark_are_those_that_are_allowed() -> None:
    assert versions.spark_lines(DECLARED) == ["4.1", "4.2", "4.3"]
    assert versions.spark_lines({"dependencies": ["pyspark>=4.2,<4.3"]}) == ["4.2"]


def test_the_readme_names_the_versions_that_are_allowed_and_ran() -> None:
    project = versions.read_project()
    table = (CHECKOUT / "README.md").read_text().partition("## Versions\n")[2].partition("\n## ")[0]
    rows = {
        name: (allowed, ran) for name, allowed, ran in re.findall(r"^\| (\w+) \| (.+) \| (.+) \|$", table, re.MULTILINE)
    }
    pythons = versions.python_versions(project)
    assert rows["Python"][0] == f"{pythons[0]} to {pythons[-1]}"
    assert rows["Java"][0] == ", ".join(JAVAS)
    assert rows["Spark"][0] == ", ".join(versions.spark_lines(project))
    assert rows["Dagster"][0] == f"{versions.bound(project, 'dagster', '>=')}.0 and newer"
    base = {pin.partition("==")[0]: pin.partition("==")[2] for pin in versions.read_pins()}
    assert base["pyspark"] in rows["Spark"][1].split("; ")
    assert base["dagster"] in rows["Dagster"][1].split("; ")


def test_the_versions_of_java_are_those_that_set_up_accepts() -> None:
    [accepted] = re.findall(r"^ +(\d+ \| \d+)\)$", (CHECKOUT / "scripts/java.sh").read_text(), re.MULTILINE)
    assert accepted.split(" | ") == list(JAVAS)


def test_a_result_that_was_recorded_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = Result(PASSED, "3.11.7", "1.13.27", "4.2.1", "17.0.15", "fast: 3 passed")
    versions.record("base", result)
    assert versions.recorded("base") == result
    versions.forget("base")
    assert versions.recorded("base") == Result(NOT_RUN)


@pytest.mark.parametrize(("outcomes", "code"), [((PASSED, NOT_RUN), 0), ((PASSED, FAILED), 1)])
def test_the_table_fails_only_if_an_environment_did(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcomes: tuple[str, ...],
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [each.name for each in versions.read_environments()][:2]
    for name, outcome in zip(names, outcomes, strict=True):
        versions.record(name, Result(outcome, tests=f"tests of {name}"))
    assert versions.main(names) == code
    printed = capsys.readouterr().out
    assert all(f"tests of {name}" in printed for name in names)
    assert closing_line([Result(outcome) for outcome in outcomes]) in printed


def test_an_environment_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"spark-9.*there are: base"):
        versions.main(["spark-9"])


def test_what_did_not_run_is_not_counted_as_passed() -> None:
    results = [Result(PASSED), Result(PASSED), Result(FAILED), Result(NOT_RUN)]
    assert closing_line(results) == "environments: 2 passed, 1 failed, 1 skipped"


def test_words_choose_parts_of_the_tests() -> None:
    assert chosen([]) == (FAST, FULL)
    assert chosen(["fast", "stream"]) == (FAST, STREAM)
    [part] = chosen(["tests/spark", "-k", "s3"])
    assert part.name == "chosen"
    assert part.arguments[-3:] == ("tests/spark", "-k", "s3")
