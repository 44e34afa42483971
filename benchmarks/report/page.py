"""The tables of the page: what lies between its markers is made from the figures, the rest is written by people.

A table begins at `<!-- figures: NAME -->` and ends at `<!-- end -->`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from textwrap import fill

from benchmarks.plan import Name, Read, Shape
from benchmarks.report.figures import Figures, Grown, Queried, Stepped, Tabled
from benchmarks.report.goals import GOALS, Goal, Verdict
from benchmarks.report.timing import Timing, p50, p95, times_as_fast
from benchmarks.report.words import count, duration, size, times
from benchmarks.results import Measured

_PLACE = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_RIVALS = (Name.PANDAS, Name.ROWS, Name.APPLY)
_OTHER_CODE = "†"
PICTURE = "images/benchmarks.svg"
LINE_MAX = 120


def filled(page: str, figures: Figures) -> str:
    """The page with these figures in it. Raises KeyError for a table that nobody knows."""
    return fill_tables(page, {name: partial(_explained_table, make, figures) for name, make in _TABLES.items()})


def fill_tables(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """The page with these tables, by the names in its markers. Raises KeyError for another name."""
    return _PLACE.sub(lambda place: f"{place[1]}{tables[place[2]]()}\n{place[3]}", page)


def _explained_table(make: Callable[[Figures], str], figures: Figures) -> str:
    text = make(figures)
    if _OTHER_CODE not in text:
        return text
    return f"{text}\n\n{_OTHER_CODE} Measured with other code than there was when this page was made."


def _marked(figures: Figures, cell: str, name: str) -> str:
    return f"{name} {_OTHER_CODE}" if figures.is_of_other_code(cell) else name


def _goals(figures: Figures) -> str:
    return table_of(
        ["work", "must", "aim", "measured", ""],
        [
            [
                goal.work,
                _bound(goal, goal.must),
                _bound(goal, goal.aim),
                _measured(goal, figures),
                _verdict(goal, figures),
            ]
            for goal in GOALS
        ],
    )


def _bound(goal: Goal, bound: float | None) -> str:
    return "" if bound is None else f"{goal.good} {bound:g}{goal.unit}"


def _measured(goal: Goal, figures: Figures) -> str:
    value = goal.value(figures)
    if value is None:
        return ""
    mark = "" if value == goal.value(figures.of_this_code()) else f" {_OTHER_CODE}"
    return f"{value:.3g}{goal.unit}{mark}"


def _verdict(goal: Goal, figures: Figures) -> str:
    verdict = goal.verdict(figures)
    return f"**{verdict}**" if verdict is Verdict.MISSED else verdict


def _native(figures: Figures) -> str:
    rows = []
    for cell in figures.cells("native"):
        for size_ in figures.sizes(cell):
            ours, theirs = figures.timing(cell, size_, Name.OURS), figures.timing(cell, size_, Name.NATIVE)
            faster = figures.faster(cell, size_, Name.NATIVE)
            if ours is not None and theirs is not None and faster is not None:
                rows.append([*_where(figures, cell, size_), *_speed(ours), *_speed(theirs), times(faster)])
    head = ["keys", "drawn", "rows a trigger", f"{Name.OURS}, rows/s", "p50", "p95"]
    return table_of([*head, f"{Name.NATIVE}, rows/s", "p50", "p95", "times as fast"], rows)


def _share(figures: Figures) -> str:
    rows = []
    for cell in figures.cells("native"):
        for size_ in figures.sizes(cell):
            ours, nothing = figures.timing(cell, size_, Name.OURS), figures.timing(cell, size_, Name.NOTHING)
            faster = figures.faster(cell, size_, Name.NOTHING)
            if ours is not None and nothing is not None and faster is not None:
                typical, least = p50(ours.seconds), p50(nothing.seconds)
                took = [duration(typical), duration(least), duration(typical - least), f"{faster * 100:.0f} %"]
                rows.append([*_where(figures, cell, size_), *took])
    head = ["keys", "drawn", "rows a trigger", f"{Name.OURS}, p50", f"{Name.NOTHING}, p50", "our own share"]
    return table_of([*head, "ours, of its rows/s"], rows)


def _python(figures: Figures) -> str:
    rows = []
    for cell in figures.cells("python"):
        for size_ in figures.sizes(cell):
            ours = figures.timing(cell, size_, Name.OURS)
            if ours is not None:
                code = figures.timing(cell, size_, Name.PROCESS)
                by_code = "" if code is None else count(code.rows_per_second)
                rivals = [_rival(figures, cell, size_, rival) for rival in _RIVALS]
                rows.append([*_where(figures, cell, size_), *_speed(ours)[:2], by_code, *rivals])
    head = ["keys", "drawn", "rows a trigger", f"{Name.OURS}, rows/s", "p50", f"{Name.PROCESS}, rows/s"]
    return table_of([*head, *(f"{rival}, rows/s (ours is)" for rival in _RIVALS)], rows)


def _rival(figures: Figures, cell: str, rows: int, rival: Name) -> str:
    timing, faster = figures.timing(cell, rows, rival), figures.faster(cell, rows, rival)
    return "" if timing is None or faster is None else f"{count(timing.rows_per_second)} ({times(faster)})"


def _where(figures: Figures, cell: str, rows: int) -> list[str]:
    settings = figures.measured[cell].settings
    return [_marked(figures, cell, count(settings["keys"])), str(settings["spread"]), count(rows)]


def _speed(timing: Timing) -> list[str]:
    return [count(timing.rows_per_second), duration(p50(timing.seconds)), duration(p95(timing.seconds))]


def _steps(figures: Figures) -> str:
    head = ["step", "keys in use", "rows a trigger", f"{Name.OURS}, rows/s", "p50", "p95"]
    head = [*head, f"{Name.SPARK}, rows/s", "p50", "p95", "times as fast", "our state", "against live rows alone"]
    return table_of(head, [_stepped(figures, each) for each in figures.stepped()])


def _stepped(figures: Figures, step: Stepped) -> list[str]:
    return [
        _marked(figures, step.cell, str(step.settings["work"])),
        count(step.settings["keys"]),
        count(step.ours.rows),
        *_speed(step.ours),
        *_speed(step.sparks),
        times(step.faster),
        size(step.state_bytes),
        f"{step.state_ratio:.2f} x",
    ]


def _graph(figures: Figures) -> str:
    rows = []
    for cell in figures.cells("graph"):
        one = figures.shaped(cell, Shape.ONE)
        for shape in Shape:
            timing = figures.shaped(cell, shape)
            if one is not None and timing is not None:
                size_ = _marked(figures, cell, count(timing.rows))
                more = "" if shape is Shape.ONE else f"{times_as_fast(one, timing):.2f} x"
                rows.append([size_, shape, *_speed(timing), more])
    return table_of(["rows a trigger", "graph", "rows/s", "p50", "p95", "time against one step's"], rows)


def _tables(figures: Figures) -> str:
    tables = figures.tabled()
    firsts = {each.settings["table"]: each for each in reversed(tables)}
    head = ["step", "keys", "state", "rows a trigger", "p50", "p95", "against the first"]
    rows = [_tabled(figures, each, firsts[each.settings["table"]]) for each in tables]
    return table_of([*head, "of it the last step", "against the first"], rows)


def _tabled(figures: Figures, each: Tabled, first: Tabled) -> list[str]:
    typical, last = p50(each.timing.seconds), p50(each.step_seconds)
    return [
        _marked(figures, each.cell, str(each.settings["table"])),
        count(each.settings["keys"]),
        size(each.state_bytes),
        count(each.timing.rows),
        duration(typical),
        duration(p95(each.timing.seconds)),
        f"{typical / p50(first.timing.seconds):.2f} x",
        duration(last),
        f"{last / p50(first.step_seconds):.2f} x",
    ]


def _nexmark(figures: Figures) -> str:
    head = ["query", "events before", "events a trigger", f"{Name.OURS}, p50", "p95", "state", f"{Name.SPARK}, p50"]
    head = [*head, "times as fast", Name.BATCH, "times as fast", "compiled in, first", "again"]
    return table_of(head, [_queried(figures, each) for each in figures.queried("nexmark")])


def _tpch(figures: Figures) -> str:
    head = ["query", f"{Name.OURS}, p50", "p95", "state", Name.BATCH, "times as fast", "compiled in, first", "again"]
    return table_of(head, [_of_changes(figures, each) for each in figures.queried("tpch")])


def _of_changes(figures: Figures, each: Queried) -> list[str]:
    name = _marked(figures, each.cell, f"Q{int(each.settings['query'])}")
    return [name, *_ours(each), *_in_batch(each)]


def _queried(figures: Figures, each: Queried) -> list[str]:
    if each.sparks is None:
        sparks = ["refuses it", ""]
    else:
        sparks = [f"{duration(p50(each.sparks.seconds))} ({each.mode})", times(times_as_fast(each.ours, each.sparks))]
    name = _marked(figures, each.cell, str(each.settings["query"]))
    return [name, count(each.settings["history"]), count(each.ours.rows), *_ours(each), *sparks, *_in_batch(each)]


def _ours(each: Queried) -> list[str]:
    return [duration(p50(each.ours.seconds)), duration(p95(each.ours.seconds)), size(each.state_bytes)]


def _in_batch(each: Queried) -> list[str]:
    """What the batch takes, how many times our triggers' time that is, and what the compilations take."""
    first, *again = each.compile_seconds
    return [
        duration(each.batch_s),
        times(each.batch_s / p50(each.ours.seconds)),
        duration(first),
        duration(p50(again)),
    ]


def _growth(figures: Figures) -> str:
    grown = figures.grown()
    head = ["keys", "state", "rows a trigger", "p50", "p95", "p95 / p50", "against the first"]
    merged = ["rows merged an epoch, median", "most / median", "recovery, beyond an empty stream's"]
    return table_of([*head, *merged], [_grown(figures, each, grown[0]) for each in grown])


def _grown(figures: Figures, grown: Grown, first: Grown) -> list[str]:
    typical, slow = p50(grown.timing.seconds), p95(grown.timing.seconds)
    uneven, recovery = grown.merge_unevenness, grown.recovery_s
    return [
        _marked(figures, grown.cell, count(grown.keys)),
        size(grown.state_bytes),
        count(grown.timing.rows),
        duration(typical),
        duration(slow),
        f"{grown.unevenness:.2f}",
        f"{typical / p50(first.timing.seconds):.2f} x",
        count(p50(grown.merged_rows)) if grown.merged_rows else "not reported",
        "" if uneven is None else f"{uneven:.2f}",
        "" if recovery is None else f"{recovery:.2f} s",
    ]


def _engine(figures: Figures) -> str:
    alone = figures.alone()
    head = ["keys", "of them one task's", "state", "rows an epoch", "p50", "p95", "against the first"]
    head = [*head, "rows merged an epoch, median", "memory, most"]
    return table_of(head, [_alone(figures, each, alone[0]) for each in alone])


def _alone(figures: Figures, alone: Grown, first: Grown) -> list[str]:
    typical = p50(alone.timing.seconds)
    return [
        _marked(figures, alone.cell, count(alone.keys)),
        count(alone.keys / figures.measured[alone.cell].settings["tasks"]),
        size(alone.state_bytes),
        count(alone.timing.rows),
        duration(typical),
        duration(p95(alone.timing.seconds)),
        f"{typical / p50(first.timing.seconds):.2f} x",
        count(p50(alone.merged_rows)),
        "" if alone.peak_bytes is None else size(alone.peak_bytes),
    ]


def _commit(figures: Figures) -> str:
    rows = []
    for cell in figures.cells("commit"):
        settings, seconds = figures.measured[cell].settings, figures.measured[cell].figures["seconds"]
        rows.append(
            [
                _marked(figures, cell, str(settings["shards"])),
                str(settings["runs"]),
                str(len(seconds)),
                *map(duration, (p50(seconds), p95(seconds))),
            ]
        )
    return table_of(["shards", "runs in each", "commits", "p50", "p95"], rows)


def _tasks(figures: Figures) -> str:
    rows = []
    for cell in figures.cells("tasks"):
        sides = figures.spread(cell)
        _, _, first = sides[0]
        for shards, tasks, timing in sides:
            took = [
                duration(p50(timing.seconds)),
                duration(p95(timing.seconds)),
                f"{times_as_fast(first, timing):.2f} x",
            ]
            rows.append([_marked(figures, cell, count(timing.rows)), str(shards), str(tasks), *took])
    return table_of(["rows a trigger", "shards", "tasks", "p50", "p95", "time against the first's"], rows)


def _reading(figures: Figures) -> str:
    rows = []
    for cell in figures.cells("reading"):
        keys = figures.measured[cell].settings["keys"]
        for what in Read:
            read = figures.read(cell, what) or {}
            took = {name: p50(timing.seconds) for name, timing in read.items()}
            sparks = duration(took[Name.SPARK]) if Name.SPARK in took else ""
            ratio = f"{took[Name.OURS] / took[Name.PARQUET]:.2f} x"
            where = [_marked(figures, cell, count(keys)), what]
            rows.append([*where, duration(took[Name.OURS]), duration(took[Name.PARQUET]), ratio, sparks])
    head = ["keys", "read", f"{Name.OURS}, p50", f"{Name.PARQUET} with pyarrow", "time against it"]
    return table_of([*head, "the same file with Spark"], rows)


def _circumstances(figures: Figures) -> str:
    rows = [
        [
            _marked(figures, cell, cell),
            measured.date,
            measured.commit,
            f"{measured.took_s} s",
            f"{measured.fsync_ms:g} ms",
            f"`{measured.command}`",
        ]
        for cell, measured in figures.measured.items()
    ]
    machines = dict.fromkeys(_machine(measured) for measured in figures.measured.values())
    table = table_of(["cell", "measured", "commit", "took", "fsync of 64 KiB", "by"], rows)
    return "\n\n".join([*machines, table])


def _machine(measured: Measured) -> str:
    machine = dict(measured.machine)
    cores, memory = machine.pop("cores"), machine.pop("memory_gb")
    versions = ", ".join(f"{name} {value}" for name, value in machine.items())
    return fill(f"{cores} cores, {memory} GB of memory; {versions}.", LINE_MAX)


def _picture(figures: Figures) -> str:
    if not figures.measured:
        return ""
    mark = f"\n\nSome of it: {_OTHER_CODE}" if any(map(figures.is_of_other_code, figures.measured)) else ""
    return f"![Rows a second by batch size, and trigger time by state size]({PICTURE}){mark}"


def table_of(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) if len(lines) > 2 else "Not measured yet."


_TABLES: dict[str, Callable[[Figures], str]] = {
    "goals": _goals,
    "picture": _picture,
    "native": _native,
    "share": _share,
    "python": _python,
    "steps": _steps,
    "graph": _graph,
    "tables": _tables,
    "nexmark": _nexmark,
    "tpch": _tpch,
    "growth": _growth,
    "engine": _engine,
    "commit": _commit,
    "tasks": _tasks,
    "reading": _reading,
    "circumstances": _circumstances,
}
