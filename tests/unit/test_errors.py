import traceback

import pytest

from dagster_ckpt.errors import FencedError, InvalidPipelineError, did_you_mean, naming


def refuse(cause: Exception | None = None) -> None:
    raise InvalidPipelineError("no such column. column=k") from cause


def test_names_follow_the_message_in_their_order_and_the_error_stands_for_itself() -> None:
    with pytest.raises(InvalidPipelineError) as told, naming(operator="window", asset="flights"):
        refuse()
    assert str(told.value) == "no such column. column=k, operator=window, asset=flights"
    # Whoever goes down to the innermost error, as Dagster's recovery does, comes to this one.
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__


def test_what_caused_it_and_where_it_was_raised_stay() -> None:
    cause = ValueError("of another kind")
    with pytest.raises(InvalidPipelineError) as told, naming(asset="flights"):
        refuse(cause)
    assert told.value.__cause__ is cause
    assert traceback.extract_tb(told.value.__traceback__)[-1].name == "refuse"


def test_each_layer_adds_what_it_knows() -> None:
    with pytest.raises(InvalidPipelineError, match=r"column=k, operator=window, asset=flights$"):  # noqa: SIM117
        with naming(asset="flights"), naming(operator="window"):
            refuse()


def test_other_errors_are_as_they_were() -> None:
    with pytest.raises(FencedError, match=r"^taken over$"), naming(asset="flights"):
        raise FencedError("taken over")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("carier", " Did you mean 'Carrier'?"),
        ("CARRIER", " Did you mean 'Carrier'?"),
        ("delays", " Did you mean 'delay'?"),
        ("quite another", ""),
        (7, ""),
    ],
)
def test_a_close_name_is_offered(name: object, hint: str) -> None:
    assert did_you_mean(name, ["Carrier", "delay"]) == hint
    assert not did_you_mean(name, [])
