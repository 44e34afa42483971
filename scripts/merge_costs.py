"""Prints what merges cost an epoch, in the simulation that the tests use: `.venv/bin/python -m scripts.merge_costs`."""

from collections.abc import Callable
from statistics import mean, median

from tests.worlds.merge_costs import Costs, Epochs

HEADER = """\
| a task's epochs | rows written (median) | greatest / median | depth (mean) | runs a shard, at most | files, at most \
| ms an epoch (mean) | at most |
|---|---|---|---|---|---|---|---|"""


def after(costs: Costs, rows: int, epochs: int, shown: int) -> Epochs:
    """The last `shown` of so many epochs."""
    for _ in range(epochs):
        costs.epoch(rows)
    done = costs.epochs
    return Epochs(*(getattr(done, name)[-shown:] for name in done.__dataclass_fields__))


def line(name: str, done: Epochs) -> str:
    written = [rows for rows in done.written if rows]
    return (
        f"| {name} | {median(written):,.0f} | {max(written) / median(written):.2f} | {mean(done.mean_depth):.1f} "
        f"| {max(done.deepest)} | {max(done.files)} | {mean(done.ms):.1f} | {max(done.ms):.1f} |"
    )


CASES: dict[str, Callable[[], Epochs]] = {
    **{
        f"90,000 rows, {keys:,} keys": lambda keys=keys: after(Costs(keys, keys), 90_000, 260, 100)  # type: ignore[misc]
        for keys in (90_000, 450_000, 4_500_000, 45_000_000, 450_000_000)
    },
    "90,000 rows, all new, from nothing": lambda: after(Costs(None), 90_000, 52, 52),
    "10,000 rows, 5,000,000 keys": lambda: after(Costs(5_000_000, 5_000_000), 10_000, 400, 200),
    "1000 rows, 10,000,000 keys": lambda: after(Costs(10_000_000, 10_000_000), 1000, 3000, 1500),
    "5000 rows, 5000 keys": lambda: after(Costs(5000, 5000), 5000, 200, 100),
}

if __name__ == "__main__":
    print(HEADER)
    for name, case in CASES.items():
        print(line(name, case()), flush=True)
