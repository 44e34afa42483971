import pytest

from dagster_ckpt.errors import CheckpointError, InvalidPipelineError
from dagster_ckpt.runtime.driver.spark_errors import secrets_left_out


def test_an_error_keeps_its_kind_and_loses_what_may_be_a_secret() -> None:
    with (
        pytest.raises(InvalidPipelineError, match=r"^cannot read ftp://host/in\?\.\.\.$") as raised,
        secrets_left_out(),
    ):
        raise InvalidPipelineError("cannot read ftp://me:SECRET@host/in?sig=SECRET")
    assert raised.value.__suppress_context__
    assert raised.value.__cause__ is None


def test_a_secret_of_a_cause_is_left_out_with_it() -> None:
    failed = CheckpointError("an epoch failed")
    failed.__cause__ = OSError("ftp://me:SECRET@host/in")
    with pytest.raises(CheckpointError, match=r"^an epoch failed$") as raised, secrets_left_out():
        raise failed
    assert raised.value.__cause__ is None


def test_an_error_of_the_system_with_a_secret_becomes_one_of_ours() -> None:
    with pytest.raises(CheckpointError, match=r"^no such file: https://host/a\?\.\.\.$"), secrets_left_out():
        raise FileNotFoundError("no such file: https://host/a?X-Amz-Signature=SECRET")


def test_an_error_without_a_secret_is_raised_as_it_is() -> None:
    error = OSError("no such file: file:///in/a")
    with pytest.raises(OSError, match="no such file") as raised, secrets_left_out():
        raise error
    assert raised.value is error


def test_an_error_that_the_user_raises_is_unchanged() -> None:
    with pytest.raises(KeyError), secrets_left_out():
        raise KeyError("https://host/a?sig=1")
