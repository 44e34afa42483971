"""Machines of a cluster, played by processes of this one: each with a network namespace, a host name and a user.

All traffic stays in network namespaces that die with the last process in them, so nothing has to be cleaned up. Where
this process may not make any, the machines are processes on loopback, and `Network.describe` says so.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.processes import HOST, Server

_ENTERED = "DAGSTER_CKPT_TEST_NAMESPACES"
_TOOLS = ("ip", "mount", "nsenter", "setpriv", "unshare")
_UNSHARE = ("unshare", "--net", "--mount", "--propagation", "private")
_NET, _GROUP, _FIRST_USER = "10.77.0", 61_000, 61_001
OWN_ADDRESS = f"{_NET}.1"
_AS_USER = 'umask 002; exec setpriv --reuid="$0" --regid="$1" --clear-groups -- "${@:2}"'
"""Everything that a user of the group makes can be changed by the others, as in a shared folder with a setgid bit."""


def enter_namespaces() -> None:
    """Start this program over in namespaces of its own, where that is allowed; returns in there, or where it is not.

    Within them the mounts made below are nobody else's.
    """
    if _ENTERED in os.environ or os.geteuid() != 0 or not all(map(shutil.which, _TOOLS)):
        return
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode:
        return
    os.environ[_ENTERED] = "1"
    os.execvp(_UNSHARE[0], [*_UNSHARE, "--", sys.executable, *sys.orig_argv[1:]])


@dataclass
class Machine:
    """One of them, reached by its address. `holder` keeps its namespaces; `wrap` is put before each command."""

    name: str
    address: str
    user: int | None = None
    holder: "subprocess.Popen[bytes] | None" = None
    wrap: tuple[str, ...] = ()

    def command(self, command: Sequence[str]) -> list[str]:
        """What runs a command on the machine, as its user."""
        return [*self._inside(), *self.wrap, *as_user(self.user, command)]

    def run_as_root(self, *command: str) -> None:
        subprocess.run([*self._inside(), *command], check=True)

    def _inside(self) -> list[str]:
        if self.holder is None:
            return []
        return ["nsenter", "--net", "--uts", "--mount", "--target", str(self.holder.pid), "--"]


def as_user(user: int | None, command: Sequence[str]) -> list[str]:
    if user is None:
        return [*command]
    return ["bash", "-c", _AS_USER, str(user), str(_GROUP), *command]


@dataclass
class Network:
    """The machines, at a bridge of this process's namespace. Entered: they can be added. Left: they are gone."""

    folder: Path
    machines: list[Machine] = field(default_factory=list)
    users: dict[str, int] = field(default_factory=dict)

    @property
    def is_namespaced(self) -> bool:
        return _ENTERED in os.environ

    @property
    def address(self) -> str:
        """Of this process, for the machines."""
        return OWN_ADDRESS if self.is_namespaced else HOST

    def describe(self) -> str:
        if not self.is_namespaced:
            return "processes on loopback as one user: namespaces need root with ip, nsenter, setpriv and unshare"
        users = "users of their own" if self.users else "one user: no other one can run this Python"
        return f"network namespaces at {_NET}.0/24, {users}"

    def __enter__(self) -> Self:
        if self.is_namespaced:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            subprocess.run(["ip", "link", "add", "machines", "type", "bridge"], check=True)
            subprocess.run(["ip", "addr", "add", f"{OWN_ADDRESS}/24", "dev", "machines"], check=True)
            subprocess.run(["ip", "link", "set", "machines", "up"], check=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for machine in self.machines:
            if machine.holder is not None:
                machine.holder.kill()
                machine.holder.wait()

    def add_users(self, names: Sequence[str], python: Path) -> None:
        """Users of one group, known in these namespaces alone; none where another user cannot run `python`."""
        if not self.is_namespaced:
            return
        self.folder.mkdir(exist_ok=True)
        self._name(
            "hosts", "127.0.0.1 localhost", [f"{_NET}.{n + 1} {each}" for n, each in enumerate(("driver", *names))]
        )
        # Another process starts it: what setpriv may still run itself is no sign.
        can = as_user(_FIRST_USER, ["sh", "-c", '"$0" -c "import pyarrow"', str(python)])
        if subprocess.run(can, capture_output=True, check=False, cwd="/").returncode:
            return
        self.users = {name: _FIRST_USER + place for place, name in enumerate(names)}
        known = [f"{name}:x:{number}:{_GROUP}::{self.folder}:/bin/sh" for name, number in self.users.items()]
        self._name("passwd", Path("/etc/passwd").read_text(), known)
        self._name("group", Path("/etc/group").read_text(), [f"streams:x:{_GROUP}:"])

    def _name(self, file: str, there: str, lines: Sequence[str]) -> None:
        """Add lines to a file of /etc, in these namespaces alone.

        Only files made here are ever mounted: whoever deletes the folder must not reach anything else through it.
        """
        own = self.folder / file
        own.write_text("\n".join([there.rstrip("\n"), *lines, ""]))
        subprocess.run(["mount", "--bind", str(own), f"/etc/{file}"], check=True)

    def machine(self, name: str) -> Machine:
        """The machine of that name, with the user of that name if there is one; new where it is not there yet."""
        return next((each for each in self.machines if each.name == name), None) or self._add(name)

    def _add(self, name: str) -> Machine:
        if not self.is_namespaced:
            self.machines.append(Machine(name, HOST))
            return self.machines[-1]
        number = len(self.machines) + 2
        holder = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "--", "sleep", "infinity"])
        machine = Machine(name, f"{_NET}.{number}", self.users.get(name), holder)
        self.machines.append(machine)
        own = Path("/proc/self/ns/net").readlink()
        while (
            Path(f"/proc/{holder.pid}/ns/net").readlink() == own
            or Path(f"/proc/{holder.pid}/comm").read_text() != "sleep\n"
        ):
            time.sleep(0.01)
        link = ["ip", "link", "add", f"to-{number}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid)]
        subprocess.run(link, check=True)
        subprocess.run(["ip", "link", "set", f"to-{number}", "master", "machines", "up"], check=True)
        machine.run_as_root("hostname", name)
        machine.run_as_root("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/tmp")
        for command in (
            ["addr", "add", f"{machine.address}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["link", "set", "lo", "up"],
        ):
            machine.run_as_root("ip", *command)
        return machine

    def share(self, folder: Path) -> Path:
        """Make a folder that all users of the group may write to, as a shared file system is set up."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.users:
            os.chown(folder, self.users["dagster"], _GROUP)
            folder.chmod(0o2775)
        return folder


def serve(machine: Machine, command: Sequence[str], log: Path, environment: dict[str, str], folder: Path) -> Server:
    """A process of a machine."""
    return Server(machine.command(command), log, environment, folder)


def remove_tree(folder: Path) -> None:
    """Delete a folder with all in it. Raises ValueError, and deletes nothing, where another one is mounted below it."""
    whole = folder.resolve()
    mounts = [Path(_unescaped(line.split()[4])) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if below := [str(mount) for mount in mounts if mount.is_relative_to(whole)]:
        raise ValueError(f"this would delete what is mounted there: unmount it first. folder={whole}, mounts={below}")
    shutil.rmtree(whole)


def _unescaped(path: str) -> str:
    """A path as the kernel writes it: blanks and the like are three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
