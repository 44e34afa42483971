import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.machines import remove_tree

UNSHARE = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
MAY_MOUNT = os.geteuid() == 0 and not subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode


def test_a_folder_of_ones_own_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "place/inner").mkdir(parents=True)
    (tmp_path / "place/inner/file").touch()
    remove_tree(tmp_path / "place")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif(not MAY_MOUNT, reason="only root may mount")
@pytest.mark.parametrize("name", ["mounted", "with a blank"])
def test_what_is_mounted_below_a_folder_is_not_deleted_with_it(tmp_path: Path, name: str) -> None:
    precious, place = tmp_path / "precious", tmp_path / "place"
    precious.mkdir()
    (precious / "file").write_text("still here")
    (place / name).mkdir(parents=True)
    (place / "own").touch()
    code = "import sys, pathlib, tests.servers.machines as own; own.remove_tree(pathlib.Path(sys.argv[1]))"
    script = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$5"'
    arguments = [str(precious), str(place / name), sys.executable, code, str(place)]
    ran = subprocess.run([*UNSHARE, script, "sh", *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "this would delete what is mounted there" in ran.stderr
    assert (precious / "file").read_text() == "still here"
    assert (place / "own").exists(), "nothing is deleted, also beside it"
