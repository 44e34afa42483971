"""One process that materializes one stream of the location once, in a Dagster instance of its own: `STREAM CONFIG`."""

import json
import sys

import dagster as dg

from tests.chaos.location import defs


def main(stream: str, config: str) -> str | None:
    """None where the run succeeded, else why it did not: what `sys.exit` makes status 0 and 1 of."""
    job = defs.resolve_job_def(f"{stream}_job")
    result = job.execute_in_process(
        instance=dg.DagsterInstance.get(),
        run_config={"ops": {stream: {"config": json.loads(config)}}},
        raise_on_error=False,
    )
    failures = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    return None if result.success else str([failure and (failure.cause or failure) for failure in failures])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
