"""Texts of YAML stay texts, and only their templates are replaced."""

import json
from typing import Any

import dagster as dg
import pytest

from dagster_ckpt import InvalidPipelineError
from dagster_ckpt.integration.component.templates import load_object, render_all

CONTEXT = dg.ResolutionContext.default().with_scope(limit=15, carrier="UA")


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("1", "1"),
        ("'UA'", "'UA'"),
        ("(1, 2)", "(1, 2)"),
        ("", ""),
        ("delay > {{ limit }}", "delay > 15"),
        ("{{ limit }}", "15"),
        ("'{{ carrier }}'", "'UA'"),
        ("{% if limit > 10 %}true{% else %}false{% endif %}", "true"),
    ],
)
def test_a_text_stays_a_text(text: str, rendered: str) -> None:
    assert render_all(CONTEXT, text) == rendered


def test_texts_are_rendered_at_any_depth_and_other_values_are_left() -> None:
    given: Any = {"a": ["{{ carrier }}", 1, True], "b": {"c": "{{ limit }}", "d": None}}
    assert render_all(CONTEXT, given) == {"a": ["UA", 1, True], "b": {"c": "15", "d": None}}


def test_a_variable_that_is_not_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELAYS_STORE", raising=False)
    with pytest.raises(InvalidPipelineError, match=r"has no value: set the environment variable.*env\.DELAYS_STORE"):
        render_all(CONTEXT, "{{ env.DELAYS_STORE }}")
    monkeypatch.setenv("DELAYS_STORE", "file:///delays")
    assert render_all(CONTEXT, "{{ env.DELAYS_STORE }}") == "file:///delays"


def test_an_object_is_loaded_by_its_path() -> None:
    assert load_object(CONTEXT, "json.dumps") is json.dumps


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("dumps", "name a Python object with its module.*path=dumps"),
        ("json.dump_s", "no object of this name. Did you mean 'dumps'.*module=json, name=dump_s"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(path: str, error: str) -> None:
    with pytest.raises(InvalidPipelineError, match=error):
        load_object(CONTEXT, path)
