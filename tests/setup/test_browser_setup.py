"""`make test-browser` finds a Chromium, or installs one and says so, or says how to."""

from pathlib import Path

import pytest

from tests.setup.machine import Machine

SCRIPT = "scripts/test_browser.sh"
APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$CALLS"
case "$*" in *' install '*chromium*) cp "$0" "$WORLD/bin/chromium" ;; esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.java("17")
    machine.program(
        machine.checkout / ".venv/bin/python",
        '#!/bin/sh\ncase "$*" in *pytest*) echo "pytest with $DAGSTER_CKPT_TEST_CHROMIUM" ;; *import*) exit 1 ;; '
        '*) echo "python $*" >>"$CALLS" ;; esac\n',
    )
    return machine


def test_without_chromium_and_without_apt_it_says_how_to_install_it(machine: Machine) -> None:
    ran = machine.run(SCRIPT)
    assert ran.code == 1
    assert "found: none" in ran.err
    assert "apt-get install chromium" in ran.err


def test_chromium_and_playwright_are_installed_where_missing(machine: Machine) -> None:
    machine.user(0)
    machine.program(machine.bin / "apt-get", APT_GET)
    ran = machine.run(SCRIPT)
    assert ran.code == 0, ran.err
    assert "Installing by apt-get: chromium" in ran.out
    [installed] = machine.called("python")
    assert "--constraint constraints.txt" in installed
    assert installed.endswith(".[browser]")
    assert f"pytest with {machine.bin / 'chromium'}" in ran.out


def test_a_named_chromium_is_used_or_refused(machine: Machine) -> None:
    mine = machine.program(machine.folder / "mine/chromium", "#!/bin/sh\n")
    machine.environment["CHROMIUM"] = str(mine)
    assert f"pytest with {mine}" in machine.run(SCRIPT).out
    mine.unlink()
    ran = machine.run(SCRIPT)
    assert ran.code == 1
    assert f"found: {mine}" in ran.err
