"""Launches a stream's job by `dagster job launch`: for the command line, which knows no Dagster.

`python -m dagster_ckpt.integration.launch STREAM CONFIG [OPTION]...`: the stream's name, the config of its op as JSON,
and what else `dagster job launch` is to get, such as `-w workspace.yaml`.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

import dagster as dg

from dagster_ckpt.integration.dagster_names import job_name_of, op_name_of
from dagster_ckpt.protocol.object_names import parts_of_name


def command(stream: str, config: Mapping[str, object], options: Sequence[str]) -> list[str]:
    """The command that launches the job of this stream alone."""
    op_name = op_name_of(dg.AssetKey(list(parts_of_name(stream))))
    run_config = json.dumps({"ops": {op_name: {"config": dict(config)}}})
    launch = ["-m", "dagster", "job", "launch", "--config-json", run_config]
    job = [] if {"-j", "--job"} & set(options) else ["--job", job_name_of(op_name)]
    return [sys.executable, *launch, *job, *options]


def main(stream: str, config: str, *options: str) -> None:
    """Run that command; exits as it does."""
    raise SystemExit(subprocess.run(command(stream, json.loads(config), options), check=False).returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])
