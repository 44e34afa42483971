"""The prepared year, made once for all tests of a session."""

from pathlib import Path

import pytest

from demo.flights import Year, prepared
from demo.weather import prepared_weather


@pytest.fixture(scope="session")
def year(tmp_path_factory: pytest.TempPathFactory) -> Year:
    folder: Path = tmp_path_factory.mktemp("prepared") / "flights"
    return prepared(folder)


@pytest.fixture(scope="session")
def weather(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the year's weather."""
    folder: Path = tmp_path_factory.mktemp("prepared") / "weather"
    prepared_weather(folder)
    return folder
