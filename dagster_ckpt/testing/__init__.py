"""Tools for users' tests: `run_batches` for assets, `ProcessKit` for process functions.

The kit needs neither Spark nor Dagster, and importing it loads neither.

    batches            runs an asset on batches of rows, with Spark
    process_kit        runs a process function on Arrow tables, without Spark
    destination_suite  what a destination of deliveries must do, as tests
    store_suite        what an object store must do, as tests
    schema_suite       what one with columns must do when the stream's columns change

What the suite is made of:

    destination_case   its rows, and what it needs to know about a destination
    failing_calls      a destination whose process dies, loses a reply or is overtaken at one of its calls
    destination_faults the tests with it
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster_ckpt.testing.batches import run_batches as run_batches
    from dagster_ckpt.testing.process_kit import ProcessKit as ProcessKit

_HOMES = {"ProcessKit": "dagster_ckpt.testing.process_kit", "run_batches": "dagster_ckpt.testing.batches"}

__all__ = sorted(_HOMES)  # noqa: PLE0605  (a list; the linter cannot see it)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'dagster_ckpt.testing' has no attribute {name!r}")
        return getattr(import_module(home), name)
