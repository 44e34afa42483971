"""A machine that is nothing but a PATH of small fake programs, for scripts that look at machines."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
REAL_TOOLS = (
    "cat",
    "chmod",
    "cp",
    "date",
    "dirname",
    "env",
    "grep",
    "mkdir",
    "rm",
    "sed",
    "sh",
    "tail",
    "touch",
    "true",
)

JAVA = """#!/bin/sh
echo 'Property settings:' >&2
echo '    java.home = {home}' >&2
echo '    java.specification.maintenance.version = 1' >&2
echo '    java.specification.version = {version}' >&2
echo 'openjdk version "{version}.0.1" 2025-01-01' >&2
"""

# A Python that can make a .venv if there is a file `ensurepip` beside it, and has pip if there is a file `pip`.
PYTHON = """#!/bin/sh
here=$(dirname "$0")
echo "$(dirname "$0" | sed 's,.*/,,')/python $*" >>"$CALLS"
case "$*" in
    '-c import sys'*) echo {version} ;;
    '-c import ensurepip'*) [ -e "$here/ensurepip" ] ;;
    '-m pip --version') [ -e "$here/pip" ] ;;
    *'-m venv'*)
        for venv; do :; done
        rm -rf "$venv"
        mkdir -p "$venv/bin"
        cp "$0" "$venv/bin/python"
        case "$*" in *--without-pip*) ;; *) touch "$venv/bin/pip" ;; esac
        ;;
    '-m pip --python'*) touch "${{4%/*}}/pip" ;;
    '-m pip config list') cat "$WORLD/pip-config" 2>/dev/null ;;
    '-m pip install'*' uv') [ -e "$WORLD/uv" ] && cp "$WORLD/uv" "$here/uv" ;;
    '-m pip install'*) [ ! -e "$here/pip-fails" ] ;;
esac
"""

UV = """#!/bin/sh
echo "uv $*" >>"$CALLS"
exit {code}
"""

APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$CALLS"
case "$*" in
    *' update') echo 'E: no network'; exit {update} ;;
    *-jre-headless*) mkdir -p "$JVM_FOLDER/new/bin"; cp "$WORLD/packaged-java" "$JVM_FOLDER/new/bin/java" ;;
esac
case "$*" in
    *-venv*) touch "$WORLD/bin/ensurepip" ;;
esac
echo 'E: broken package'
exit {install}
"""

SUDO = """#!/bin/sh
echo "sudo $*" >>"$CALLS"
[ "$1" = -n ] && shift
exec "$@"
"""


@dataclass(frozen=True)
class Ran:
    """What a script said, and its exit code."""

    code: int
    out: str
    err: str


class Machine:
    """A checkout with the real scripts on a fake machine: no Java, no Python, no apt-get, an ordinary user."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.jvms = folder / "jvm"
        self.checkout = folder / "checkout"
        self.calls = folder / "calls"
        self.environment: dict[str, str] = {}
        self.bin.mkdir()
        self.calls.touch()
        for tool in REAL_TOOLS:
            real = shutil.which(tool)
            assert real is not None, tool
            (self.bin / tool).symlink_to(real)
        shutil.copytree(CHECKOUT / "scripts", self.checkout / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
        self.user(1000)

    def program(self, path: Path, text: str) -> Path:
        """Put a fake program there."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def user(self, number: int) -> None:
        """Be the user of that number; 0 is root."""
        self.program(self.bin / "id", f"#!/bin/sh\necho {number}\n")

    def java(self, version: str, home: Path | None = None) -> Path:
        """Install a Java below `home`; without one, in a place that only PATH knows. Returns its home."""
        where = self.folder / "java" if home is None else home
        self.program(where / "bin/java", JAVA.format(home=where, version=version))
        if home is None:
            (self.bin / "java").symlink_to(where / "bin/java")
        return where

    def python(
        self, name: str = "python3.11", version: str = "3.11", has: tuple[str, ...] = ("ensurepip", "pip")
    ) -> None:
        """Install a Python on PATH, and say what it has."""
        self.program(self.bin / name, PYTHON.format(version=version))
        for module in has:
            (self.bin / module).touch()

    def uv(self, *, on_path: bool = False, code: int = 0) -> None:
        """Have uv, on PATH or where pip installs it from. It ends with this exit code."""
        self.program(self.bin / "uv" if on_path else self.folder / "uv", UV.format(code=code))

    def pip_config(self, line: str) -> None:
        """Have a setting of pip, as `pip config list` prints it."""
        (self.folder / "pip-config").write_text(f"{line}\n")

    def apt(self, offers: tuple[str, ...], update: int = 0, install: int = 0) -> None:
        """Install apt-get, which offers these packages and ends with these exit codes."""
        self.program(self.folder / "packaged-java", JAVA.format(home=self.jvms / "new", version="17"))
        self.program(self.bin / "apt-get", APT_GET.format(update=update, install=install))
        self.program(self.bin / "apt-cache", f"#!/bin/sh\ncase $2 in {' | '.join(offers)}) ;; *) exit 1 ;; esac\n")

    def sudo(self) -> None:
        """Install a sudo that asks no password."""
        self.program(self.bin / "sudo", SUDO)

    def run(self, *command: str) -> Ran:
        """Run a script of the checkout."""
        environment = {
            "PATH": str(self.bin),
            "CALLS": str(self.calls),
            "WORLD": str(self.folder),
            "JVM_FOLDER": str(self.jvms),
            **self.environment,
        }
        done = subprocess.run(
            command,
            cwd=self.checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def called(self, program: str) -> list[str]:
        """The arguments of each call of a program, in order."""
        calls = self.calls.read_text().splitlines()
        return [call.removeprefix(f"{program} ") for call in calls if call.startswith(f"{program} ")]

    @property
    def is_set_up(self) -> bool:
        """Whether make would believe that set-up is done."""
        return os.path.lexists(self.checkout / ".venv/.set-up")
