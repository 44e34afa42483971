from pathlib import Path

import pytest

from tests.setup.machine import Machine, Ran

SETUP = "scripts/setup.sh"
JRE_17, JRE_21, VENV = "openjdk-17-jre-headless", "openjdk-21-jre-headless", "python3.11-venv"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def installed(machine: Machine) -> list[list[str]]:
    """The packages of each call of apt-get install."""
    calls = [call.split("--no-install-recommends ") for call in machine.called("apt-get") if " install " in call]
    return [call[1].split() for call in calls]


def refused(ran: Ran, machine: Machine) -> str:
    """The message of a set-up that stopped."""
    assert ran.code == 1
    assert not machine.is_set_up
    return ran.err


@pytest.mark.parametrize("version", ["17", "21"])
def test_a_java_that_spark_knows_is_used_as_it_is(machine: Machine, version: str) -> None:
    machine.python()
    home = machine.java(version)
    machine.user(0)
    machine.apt(offers=(JRE_17,))
    ran = machine.run(SETUP)
    assert ran.code == 0, ran.err
    assert f"Java {version} found: {home}\n" in ran.out
    assert machine.is_set_up
    assert machine.called("apt-get") == []


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_another_java_is_named_with_what_to_install(machine: Machine, version: str) -> None:
    machine.python()
    home = machine.java(version)
    message = refused(machine.run(SETUP), machine)
    assert f"found: Java {version} ({home})." in message
    assert f"apt-get install {JRE_17}" in message
    assert "JAVA_HOME" in message


def test_without_any_java_the_message_says_so(machine: Machine) -> None:
    machine.python()
    assert "version 17 or 21; found: none." in refused(machine.run(SETUP), machine)


def test_java_home_beats_the_java_on_path(machine: Machine) -> None:
    machine.python()
    machine.java("17")
    home = machine.java("21", machine.folder / "a java with spaces")
    machine.environment["JAVA_HOME"] = str(home)
    assert f"Java 21 found: {home}\n" in machine.run(SETUP).out


def test_the_java_that_was_asked_for_is_found_and_no_other(machine: Machine) -> None:
    machine.python()
    machine.java("17")
    machine.environment["DAGSTER_CKPT_TEST_JAVA"] = "21"
    message = refused(machine.run(SETUP), machine)
    assert "version 21; found: Java 17 (" in message
    assert "apt-get install openjdk-21-jre-headless" in message
    home = machine.java("21", machine.folder / "on GitHub")
    machine.environment["JAVA_HOME_21_X64"] = str(home)
    assert f"Java 21 found: {home}\n" in machine.run(SETUP).out


def test_a_java_home_that_does_not_fit_is_passed_over(machine: Machine) -> None:
    machine.python()
    machine.environment["JAVA_HOME"] = str(machine.java("25", machine.folder / "newest"))
    home = machine.java("17", machine.jvms / "java-17")
    assert f"Java 17 found: {home}\n" in machine.run(SETUP).out


def test_a_program_that_only_calls_itself_java_is_passed_over(machine: Machine) -> None:
    machine.python()
    machine.program(machine.bin / "java", "#!/bin/sh\necho 'no version is set for command java' >&2\nexit 126\n")
    home = machine.java("17", machine.jvms / "java-17")
    assert f"Java 17 found: {home}\n" in machine.run(SETUP).out


def test_root_gets_java_and_the_missing_half_of_python_in_one_install(machine: Machine) -> None:
    machine.python(has=())
    machine.user(0)
    machine.apt(offers=(JRE_17, JRE_21, VENV))
    ran = machine.run(SETUP)
    assert ran.code == 0, ran.err
    assert installed(machine) == [[VENV, JRE_17]]
    assert f"Java 17 found: {machine.jvms / 'new'}\n" in ran.out
    assert machine.is_set_up


def test_a_debian_without_java_17_gets_21(machine: Machine) -> None:
    machine.python()
    machine.user(0)
    machine.apt(offers=(JRE_21,))
    assert machine.run(SETUP).code == 0
    assert installed(machine) == [[JRE_21]]


def test_a_sudo_that_asks_no_password_is_used(machine: Machine) -> None:
    machine.python()
    machine.sudo()
    machine.apt(offers=(JRE_17,))
    assert machine.run(SETUP).code == 0
    assert installed(machine) == [[JRE_17]]
    assert all("apt-get" in call for call in machine.called("sudo") if call != "-n true")


def test_an_ordinary_user_gets_the_command_to_install(machine: Machine) -> None:
    machine.python()
    machine.program(machine.bin / "sudo", "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    machine.apt(offers=(JRE_17,))
    message = refused(machine.run(SETUP), machine)
    assert message.startswith("Spark needs a Java runtime")
    assert machine.called("apt-get") == []


def test_a_failed_update_of_the_lists_does_not_stop_an_install_that_works(machine: Machine) -> None:
    machine.python()
    machine.user(0)
    machine.apt(offers=(JRE_17,), update=100)
    ran = machine.run(SETUP)
    assert ran.code == 0, ran.err
    assert "apt-get update failed" in ran.out


def test_a_failed_install_shows_the_output_of_apt_get(machine: Machine) -> None:
    machine.python()
    machine.user(0)
    machine.apt(offers=(JRE_17,), install=100)
    message = refused(machine.run(SETUP), machine)
    assert "E: broken package" in message
    assert f"could not install {JRE_17}" in message


def test_a_python_without_ensurepip_is_helped_by_its_own_pip(machine: Machine) -> None:
    machine.python(has=("pip",))
    machine.java("17")
    ran = machine.run(SETUP)
    assert ran.code == 0, ran.err
    assert "-m venv --clear --without-pip .venv" in machine.called("bin/python")
    assert machine.is_set_up


def test_a_python_with_neither_ensurepip_nor_pip_is_named_with_the_cure(machine: Machine) -> None:
    machine.python(has=())
    machine.java("17")
    message = refused(machine.run(SETUP), machine)
    assert f"apt-get install {VENV}" in message
    assert "PYTHON=" in message


def test_python3_serves_where_it_is_new_enough(machine: Machine) -> None:
    machine.python("python3", version="3.13")
    machine.java("17")
    assert "Python 3.13 found: " in machine.run(SETUP).out


@pytest.mark.parametrize("version", ["3.10", "3.14", ""])
def test_without_a_fitting_python_the_message_says_what_to_install(machine: Machine, version: str) -> None:
    machine.python("python3", version=version)
    machine.java("17")
    message = refused(machine.run(SETUP), machine)
    assert message.startswith("Python 3.11, 3.12 or 3.13 is needed")
    assert "apt-get install python3.11 python3.11-venv" in message


def test_a_python_that_was_named_is_never_silently_replaced(machine: Machine) -> None:
    machine.python()
    machine.python("python3.9", version="3.9")
    machine.java("17")
    machine.environment["PYTHON"] = "python3.9"
    assert refused(machine.run(SETUP), machine).endswith("PYTHON=python3.9\n")


def test_a_set_up_killed_while_it_made_the_venv_makes_it_again(machine: Machine) -> None:
    machine.python()
    machine.java("17")
    assert machine.run(SETUP).code == 0
    for left_out in ("pip", "../.set-up"):
        (machine.checkout / ".venv/bin" / left_out).unlink()
    assert machine.run(SETUP).code == 0
    assert machine.called("bin/python").count("-m venv --clear .venv") == 2
    assert machine.is_set_up


def test_a_venv_that_works_is_kept(machine: Machine) -> None:
    machine.python()
    machine.java("17")
    assert machine.run(SETUP).code == 0
    ran = machine.run(SETUP)
    assert "Python 3.11 found: .venv\n" in ran.out
    assert machine.called("bin/python").count("-m venv --clear .venv") == 1


def test_set_up_is_not_done_when_pip_failed(machine: Machine) -> None:
    machine.python()
    machine.java("17")
    (machine.bin / "pip-fails").touch()
    assert machine.run(SETUP).code == 0  # the Python on PATH installs nothing; the one in .venv does
    (machine.checkout / ".venv/.set-up").unlink()
    (machine.checkout / ".venv/bin/pip-fails").touch()
    assert machine.run(SETUP).code != 0
    assert not machine.is_set_up


def by_pip(machine: Machine) -> list[str]:
    """The calls of pip that install the package."""
    return [call for call in machine.called(".venv/bin/python") + machine.called("bin/python") if "--editable" in call]


@pytest.mark.parametrize("on_path", [True, False])
def test_uv_installs_what_is_pinned_and_compiles_it(machine: Machine, *, on_path: bool) -> None:
    machine.python()
    machine.java("17")
    machine.uv(on_path=on_path)
    ran = machine.run(SETUP)
    assert ran.code == 0, ran.err
    [call] = machine.called("uv")
    assert "--compile-bytecode --constraint constraints.txt --editable .[demo,dev," in call
    assert by_pip(machine) == []


@pytest.mark.parametrize("setting", ["global.index-url='x'", "user.extra-index-url='x'", ":env:.proxy='x'"])
def test_pip_installs_where_it_is_told_of_an_index_that_uv_would_not_ask(machine: Machine, setting: str) -> None:
    machine.python()
    machine.java("17")
    machine.uv(on_path=True)
    machine.pip_config(setting)
    assert machine.run(SETUP).code == 0
    assert machine.called("uv") == []
    assert len(by_pip(machine)) == 1


def test_pip_installs_what_uv_could_not_and_the_set_up_says_so(machine: Machine) -> None:
    machine.python()
    machine.java("17")
    machine.uv(on_path=True, code=2)
    ran = machine.run(SETUP)
    assert ran.code == 0, ran.err
    assert "uv could not (see .work/setup.log)\nInstalling Python packages with pip" in ran.out
    assert len(by_pip(machine)) == 1


def test_another_venv_has_its_own_extras_and_leaves_the_usual_one_alone(machine: Machine) -> None:
    machine.python()
    machine.java("17")
    machine.environment |= {"VENV": ".bench/venv", "EXTRAS": "bench"}
    ran = machine.run(SETUP)
    assert ran.code == 0, ran.err
    assert (machine.checkout / ".bench/venv/.set-up").exists()
    assert any(call.endswith("--editable .[bench]") for call in machine.called("bin/python"))
    assert not machine.is_set_up
    assert machine.run("scripts/run.sh", "sh", "-c", "echo ${PATH%%:*}").out == f"{machine.checkout}/.bench/venv/bin\n"


def test_the_demo_is_ready_before_everything_is(machine: Machine) -> None:
    machine.python()
    machine.java("17")
    machine.environment |= {"EXTRAS": "demo", "READY": ".venv/.set-up-demo"}
    assert machine.run(SETUP).code == 0
    assert (machine.checkout / ".venv/.set-up-demo").exists()
    assert not machine.is_set_up
    assert len(by_pip(machine)) == 1
    assert by_pip(machine)[0].endswith("--editable .[demo]")


def test_a_command_runs_with_sparks_java_and_the_venv_first(machine: Machine) -> None:
    home = machine.java("17", machine.jvms / "java-17")
    machine.environment["JAVA_HOME"] = str(machine.java("25"))
    ran = machine.run("scripts/run.sh", "sh", "-c", 'echo "$JAVA_HOME:${PATH%%:*}"; exit 7')
    assert ran == Ran(7, f"{home}:{machine.checkout / '.venv/bin'}\n", "")


def test_a_command_that_needs_java_does_not_start_without(machine: Machine) -> None:
    ran = machine.run("scripts/run.sh", "touch", "started")
    assert ran.code == 1
    assert "version 17 or 21; found: none." in ran.err
    assert not (machine.checkout / "started").exists()
