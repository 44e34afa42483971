"""What stands for a stream in the queries of a session is known until these are compiled, without the JVM."""

from types import SimpleNamespace
from typing import Any

import pytest

from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.plans import direct_call, stand_ins
from dagster_ckpt.runtime.plans.stand_ins import dataframe_of, stand_ins_of, stream_of_number


def session(name: str) -> Any:
    return SimpleNamespace(_jsparkSession=SimpleNamespace(sessionUUID=lambda: name))


@pytest.fixture(autouse=True)
def numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(100))
    planner = SimpleNamespace(stand_in=lambda rows: (rows, next(numbers)))
    monkeypatch.setattr(stand_ins, "Catalyst", lambda _: planner)
    monkeypatch.setattr(stand_ins, "rows_of", lambda _: SimpleNamespace(frame=SimpleNamespace(drop=lambda _: "rows")))
    monkeypatch.setattr(stand_ins, "_streams", {})


def table() -> Any:
    return SimpleNamespace(keys=(), step=None)


def test_each_session_has_its_own() -> None:
    one, other, stream = session("one"), session("other"), table()
    dataframe_of(stream, one)
    assert stream_of_number(one, 0) is stream
    assert stream_of_number(session("one"), 0) is stream  # another object of the same session
    assert stream_of_number(other, 0) is None


def test_those_of_a_session_are_forgotten_after_its_stream_is_made() -> None:
    one, other = session("one"), session("other")
    dataframe_of(table(), other)
    with stand_ins_of(one):
        dataframe_of(table(), one)
        dataframe_of(table(), one)
        assert stream_of_number(one, 2) is not None
    assert list(stand_ins._streams) == ["other"]


def test_a_stream_that_starts_again_and_again_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_call, "stream_returned", lambda _asset, returned, *_: returned)

    def reads(session: Any, orders: Stream) -> object:
        return dataframe_of(orders, session)

    for start in range(50):
        own = session(f"session {start}")
        upstreams: Any = SimpleNamespace()
        direct_call.call_directly("a", reads, own, {"session": own, "orders": table()}, upstreams)
    assert stand_ins._streams == {}


def test_nor_does_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_asset: str, _returned: object, *_: object) -> None:
        raise ValueError("no query")

    monkeypatch.setattr(direct_call, "stream_returned", refuses)
    own = session("one")
    upstreams: Any = SimpleNamespace()
    with pytest.raises(ValueError, match="no query"):
        direct_call.call_directly("a", lambda orders: dataframe_of(orders, own), own, {"orders": table()}, upstreams)
    assert stand_ins._streams == {}
