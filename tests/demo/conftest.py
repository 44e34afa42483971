"""The prepared year, made once for all tests of a session."""

from pathlib import Path

import pytest

from demo.flights import Year, prepared


@pytest.fixture(scope="session")
def year(tmp_path_factory: pytest.TempPathFactory) -> Year:
    folder: Path = tmp_path_factory.mktemp("prepared") / "flights"
    return prepared(folder)
