import subprocess
import sys
from pathlib import Path

from tests.unit.history.made_streams import MadeStream, departures

READ = """
import sys
from dagster_ckpt import CheckpointStore
assert CheckpointStore(sys.argv[1]).stream("delays").read().num_rows == 1
heavy = {"dagster", "pyspark", "dagster_pyspark", "fsspec", "click", "rich"} & set(sys.modules)
assert not heavy, heavy
"""


def test_a_table_is_read_in_a_process_that_loads_neither(tmp_path: Path) -> None:
    stream = MadeStream(tmp_path.as_uri(), "delays")
    stream.commit(departures({"UA": [1.0]}))
    stream.close()
    subprocess.run([sys.executable, "-c", READ, tmp_path.as_uri()], check=True, timeout=60)
