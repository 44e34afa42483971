"""A changed, added or removed step starts over from the tables of the steps before it, which keep their state."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dagster_ckpt import agg, over
from dagster_ckpt.errors import IncompatibleStateError, InvalidPipelineError
from dagster_ckpt.protocol.manifest.manifest import Manifest, ManifestKind
from dagster_ckpt.runtime.declared.stream import Stream
from dagster_ckpt.runtime.driver.stream_job import JobHooks
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from tests.spark.streams import FAST, StreamUnderTest
from tests.spark.test_several_steps import EPOCHS, Crash, drop, rows_of

pytestmark = pytest.mark.slow

OLD, NEW = [EPOCHS[0] + EPOCHS[1], EPOCHS[2]], [[row for rows in EPOCHS[3:] for row in rows]]
Steps = Callable[[SparkSession, Path], Stream]


def shops(session: SparkSession, folder: Path) -> Stream:
    return rows_of(session, folder).key_by("order").deduplicate().key_by("shop").aggregate(total=agg.sum("amount"))


def counted(session: SparkSession, folder: Path) -> Stream:
    return shops(session, folder).aggregate(shops=agg.count(), all=agg.sum("total"))


def largest(session: SparkSession, folder: Path) -> Stream:
    return shops(session, folder).top(2, by="total desc", rank="place")


def counted_and_largest(session: SparkSession, folder: Path) -> Stream:
    return largest(session, folder).where("place = 1").aggregate(most=agg.max("total"))


def both(session: SparkSession, folder: Path) -> Stream:
    """A step that two changed ones read, which meet again."""
    each = shops(session, folder)
    sizes = each.with_column("odd", "total % 2").key_by("odd").aggregate(most=agg.max("total"))
    return each.with_column("odd", "total % 2").key_by("odd").join(sizes.key_by("odd"))


def classes(session: SparkSession, folder: Path) -> Stream:
    return shops(session, folder).select("total % 3 AS class").distinct()


def classes_counted(session: SparkSession, folder: Path) -> Stream:
    return classes(session, folder).aggregate(classes=agg.count(), all=agg.sum("class"))


def places(session: SparkSession, folder: Path) -> Stream:
    """Steps without a table of their rows: functions over a partition, the first rows, a join, a difference."""
    each = shops(session, folder)
    best = each.top(3, "total desc").select("shop AS best", "total AS most")
    ranked = each.over("total desc", place=over.row_number(), before=over.lag("total"))
    joined = ranked.key_by("shop").join(best.key_by("best")).select("shop", "total", "place", "before")
    return joined.except_all(each.select("shop", "total", "1 AS place", "total AS before"))


def places_added_up(session: SparkSession, folder: Path) -> Stream:
    return places(session, folder).key_by("place").aggregate(all=agg.sum("total"), before=agg.max("before"))


def places_counted(session: SparkSession, folder: Path) -> Stream:
    return places(session, folder).aggregate(n=agg.count(), shops=agg.collect("shop", 10, by="place"))


def unmatched(session: SparkSession, folder: Path) -> Stream:
    """A join that keeps rows without a match, of which those with a null in their key are in no state."""
    each = shops(session, folder)
    return each.key_by("shop").join(each.where("total > 5").select("shop AS large").key_by("large"), how="left")


def unmatched_counted(session: SparkSession, folder: Path) -> Stream:
    return unmatched(session, folder).aggregate(n=agg.count())


def distinct_rows(session: SparkSession, folder: Path) -> Stream:
    """Only appends."""
    return rows_of(session, folder).distinct()


def totals_of_distinct_rows(session: SparkSession, folder: Path) -> Stream:
    return distinct_rows(session, folder).key_by("shop").aggregate(total=agg.sum("amount"), rows=agg.count())


def one_step(session: SparkSession, folder: Path) -> Stream:
    return rows_of(session, folder).key_by("shop").aggregate(total=agg.sum("amount"), rows=agg.count())


def behind_one_step(session: SparkSession, folder: Path) -> Stream:
    return one_step(session, folder).key_by("rows").aggregate(shops=agg.count(), total=agg.sum("total"))


def over_all_rows(spark: SparkSession, place: Path, steps: Steps) -> list[dict[str, object]]:
    """What the steps give of all rows from the beginning, in one epoch."""
    stream, folder = StreamUnderTest(spark, place), place / "rows"
    place.mkdir()
    drop(folder, 0, [row for rows in EPOCHS for row in rows])
    stream.run(lambda session: steps(session, folder))
    return stream.rows()


def begun(spark: SparkSession, place: Path, steps: Steps) -> StreamUnderTest:
    """A stream that has read the old files, which are no more."""
    stream, folder = StreamUnderTest(spark, place), place / "rows"
    for number, rows in enumerate(OLD):
        drop(folder, number, rows)
    stream.run(lambda session: steps(session, folder))
    for path in folder.iterdir():
        path.unlink()
    return stream


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(counted, largest, id="changed"),
        pytest.param(largest, counted_and_largest, id="added-behind-one-that-keeps-no-table", marks=pytest.mark.long),
        pytest.param(places_added_up, places_counted, id="changed-behind-one-without-a-table"),
        pytest.param(places_counted, places, id="removed-behind-one-without-a-table", marks=pytest.mark.long),
        pytest.param(shops, both, id="added-with-branches"),
        pytest.param(counted, shops, id="removed", marks=pytest.mark.long),
        pytest.param(one_step, behind_one_step, id="added-behind-one-step", marks=pytest.mark.long),
        pytest.param(
            distinct_rows, totals_of_distinct_rows, id="added-behind-one-that-appends", marks=pytest.mark.long
        ),
        pytest.param(classes, classes_counted, id="added-behind-a-set"),
    ],
)
def test_a_changed_step_has_all_rows_that_were_ever_read(
    spark: SparkSession, tmp_path: Path, before: Steps, after: Steps
) -> None:
    stream, folder = begun(spark, tmp_path, before), tmp_path / "rows"
    old, then = stream.history().manifest(), stream.rows()
    for number, rows in enumerate(NEW, len(OLD)):
        drop(folder, number, rows)
    stream.run(lambda session: after(session, folder), restart_steps=True)

    assert stream.rows() == over_all_rows(spark, tmp_path / "again", after)
    assert stream.rows(old.epoch) == then
    newest = stream.history().manifest()
    assert newest.statistics.total_rows_in == sum(map(len, EPOCHS))
    assert newest.table_rows == len(stream.rows())
    first = min(each.epoch for each in newest.retained if each.epoch > old.epoch)
    with pytest.raises(InvalidPipelineError, match="left this epoch behind"):
        stream.history().changes(after=old.epoch)
    with pytest.raises(InvalidPipelineError, match="no longer kept"):
        stream.history().changes(after=0)
    assert stream.history().changes(after=first).num_rows > 0
    assert stream.history().verify().whole


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_leaves_the_old_steps_or_the_new(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    stream, folder = begun(spark, tmp_path, counted), tmp_path / "rows"
    old, create = stream.history().manifest(), ManifestChain.create

    def dying(chain: ManifestChain, parent: Manifest, child: Manifest) -> None:
        if child.kind is not ManifestKind.EPOCH:
            create(chain, parent, child)
            return
        if when == "after":
            create(chain, parent, child)
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(ManifestChain, "create", dying)
        with pytest.raises(Crash):
            stream.run(lambda session: largest(session, folder), restart_steps=True)
    left = stream.history().manifest()
    if when == "before":
        assert (left.epoch, left.pipeline) == (old.epoch, old.pipeline)
        with pytest.raises(IncompatibleStateError, match="restart_steps: true"):
            stream.run(lambda session: largest(session, folder))
        stream.run(lambda session: counted(session, folder))  # the old code goes on as if nothing had been
    else:
        assert left.pipeline.operator == "top"
    for number, rows in enumerate(NEW, len(OLD)):
        drop(folder, number, rows)
    stream.run(lambda session: largest(session, folder), FAST, JobHooks(), restart_steps=True)
    assert stream.rows() == over_all_rows(spark, tmp_path / "again", largest)
    stream.run(lambda session: largest(session, folder))  # the option is for the change alone


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        pytest.param(
            largest,
            lambda session, folder: shops(session, folder).key_by("shop").join(rows_of(session, folder).key_by("shop")),
            "reads a source, whose past rows are gone",
            id="a-source",
        ),
        pytest.param(unmatched_counted, unmatched, "kept no table of its rows", id="removed"),
        pytest.param(
            unmatched_counted,
            lambda session, folder: unmatched(session, folder).aggregate(least=agg.min("total")),
            "keeps no rows that a changed step could begin with",
            id="changed",
        ),
    ],
)
def test_what_cannot_start_over_is_refused(
    spark: SparkSession, tmp_path: Path, before: Steps, after: Steps, why: str
) -> None:
    stream, folder = begun(spark, tmp_path, before), tmp_path / "rows"
    old, then = stream.history().manifest(), stream.rows()
    with pytest.raises(IncompatibleStateError, match=why):
        stream.run(lambda session: after(session, folder), restart_steps=True)
    assert stream.history().manifest() == old
    assert stream.rows() == then
