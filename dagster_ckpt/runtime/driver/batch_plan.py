"""What is done with the rows of each micro-batch, as plans that Spark makes once."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.runtime.catalyst.query_plan import each_of, has_pattern, kind_of, plan_of
from dagster_ckpt.runtime.spark.jvm import frame_of_rdd, java_class, java_frame, java_session, scala_seq
from dagster_ckpt.runtime.task.dataflow import Stage, on_batch, on_rows, shard_replies, source_inputs
from dagster_ckpt.runtime.task.epoch_task import Sent
from dagster_ckpt.runtime.task.shard_assignment import columns_of_input

Node = Any
"""A node of a physical plan, in the JVM."""
_Leaf = Callable[[Node], Node]
"""What is put in the place of a leaf."""

_SQL = "org.apache.spark.sql"
_EXPRESSIONS = f"{_SQL}.catalyst.expressions"
_EXECUTION = f"{_SQL}.execution"
_CONSTANTS = ("LocalTableScanExec", "OneRowRelationExec")
"""Leaves that are the same in every epoch."""
_COLUMNS_BEFORE = 2
"""Of a union of inputs: the input's number and a hash, then a struct of each input."""


@dataclass(frozen=True)
class PlannedRows:
    """A physical plan, ready to run in its session."""

    sparkSession: SparkSession  # noqa: N815  (as a DataFrame has it)
    plan: Any

    def rdd(self) -> Any:
        """Its rows. A broadcast below it runs now."""
        return self.plan.execute()


def rows_of(frame: DataFrame | PlannedRows) -> Any:
    """The RDD of the frame. `foreachBatch` hands over one that is made: to collect its frame would plan it again."""
    if isinstance(frame, PlannedRows):
        return frame.rdd()
    plan = plan_of(frame)
    return plan.rdd() if kind_of(plan) == "LogicalRDD" else java_frame(frame).queryExecution().toRdd()


class BatchPlan:
    """The physical plans of the stages over stand-ins for their rows. They are put on one micro-batch after another.

    To analyse, to optimise and to plan them for each micro-batch takes Spark 50 ms for one step, and more than a second
    for the sixteen of a query of TPC-H. They are cut behind each step that several read: the rows of such a part are
    made behind a shuffle, and are a leaf of those that read it.

    What Spark must look at in each micro-batch is planned in each: a table beside the stream, the time of day, chance.
    """

    def __init__(self, batch: DataFrame, stages: Sequence[Stage], replies: Sent) -> None:
        self._session: SparkSession = batch.sparkSession
        self._stages, self._replies = stages, replies
        self._inputs = [_StandIn.of(self._session, schema) for schema in _schemas(batch, stages)]
        self._parts: list[_Part] = []
        replies_of_last = shard_replies(on_rows(stages, [each.frame for each in self._inputs]), replies, self._cut)
        self._parts.append(_Part.of(replies_of_last, None))
        stand_ins = {each.number for each in self._inputs}
        stand_ins.update(part.behind.number for part in self._parts if part.behind is not None)
        self._once = all(part.stays(stand_ins) for part in self._parts)
        self._gathers = stages[0].partial is not None and stages[0].setup.assignment.tasks == 1
        self._renamed: dict[int, tuple[Any, Any]] = {}

    def on(self, batch: DataFrame, reads: Any) -> DataFrame | PlannedRows:
        """What comes of a micro-batch. `reads` has the plans that read its rows from the sources."""
        if not self._once:
            # Spark knows how few rows a batch has. It would take those of a step for the table of a join, and run the
            # tasks of the step in a job of its own. Of an RDD it knows nothing.
            rows = frame_of_rdd(batch.sparkSession, rows_of(batch), java_frame(batch).schema())
            return shard_replies(on_batch(self._stages, rows), self._replies)
        read, gathered = _read_by(self._session, reads), self._gathers and rows_of(batch).getNumPartitions() == 1
        leaves: dict[int, _Leaf] = {
            stand_in.number: partial(self._renaming, stand_in.number, *each)
            for stand_in, each in zip(self._inputs, self._of_inputs(read), strict=True)
        }
        execution, own = java_class(self._session, f"{_EXECUTION}.QueryExecution"), java_session(self._session)
        *cut, last = self._parts
        for part in cut:
            assert part.behind is not None, "only the last part has no readers"
            rows = execution.prepareExecutedPlan(own, part.over(leaves, gathered=gathered)).execute()
            leaves[part.behind.number] = partial(_with_rdd, self._session, rows)
        return PlannedRows(self._session, execution.prepareExecutedPlan(own, last.over(leaves, gathered=gathered)))

    def _cut(self, rows: DataFrame) -> DataFrame:
        """A stand-in for rows that several read, which are behind a shuffle."""
        stand_in = _StandIn.of(self._session, java_frame(rows).schema())
        self._parts.append(_Part.of(rows, stand_in))
        return stand_in.frame

    def _of_inputs(self, read: Node) -> Iterator[tuple[Any, Node]]:
        """The columns of each input, and the plan that they are of."""
        if len(self._inputs) == 1:
            yield read.output(), read
            return
        sides: dict[int | None, list[Node]] = {}
        for side in each_of(read.children()) if kind_of(read) == "UnionExec" else ():
            sides.setdefault(_number_of_input(side), []).append(side)
        for number in range(len(self._inputs)):
            # An input may be a union itself, and Spark makes one of both; a side that does not say may be of any input.
            own = sides.get(number, []) if None not in sides else []
            yield (_of_side(number, own[0]) if len(own) == 1 else None) or self._of_union(number, read)

    def _of_union(self, number: int, read: Node) -> tuple[Any, Node]:
        """The same of one input, from all rows."""
        session, output = self._session, read.output()
        wanted = java_session(session).sessionState().sqlParser().parseExpression(str(number))
        is_own = java_class(session, f"{_EXPRESSIONS}.EqualTo")(output.apply(0), wanted)
        struct, field = output.apply(_COLUMNS_BEFORE + number), java_class(session, f"{_EXPRESSIONS}.GetStructField")
        none = java_class(session, "scala.Option").empty()
        columns = [field(struct, place, none) for place in range(struct.dataType().length())]
        return scala_seq(session, columns), _tagged(java_class(session, f"{_EXECUTION}.FilterExec")(is_own, read), read)

    def _renaming(self, number: int, columns: Any, rows: Node, leaf: Node) -> Node:
        """The rows under the names and numbers of the columns of a leaf with this number."""
        session = self._session
        known = self._renamed.get(number)
        if known is None or not columns.equals(known[0]):
            alias = java_class(session, f"{_EXPRESSIONS}.Alias")
            none, nothing = java_class(session, "scala.Option").empty(), scala_seq(session, [])
            pairs = zip(each_of(columns), each_of(leaf.output()), strict=True)
            named = [alias(one, wanted.name(), wanted.exprId(), nothing, none, nothing) for one, wanted in pairs]
            known = (columns, scala_seq(session, named))
            self._renamed[number] = known
        return _tagged(java_class(session, f"{_EXECUTION}.ProjectExec")(known[1], rows), leaf)


@dataclass(frozen=True)
class _StandIn:
    """Rows of which Spark knows nothing but their columns, so that it concludes nothing from there being none.

    A plan has `number` at the leaf.
    """

    frame: DataFrame
    number: int

    @classmethod
    def of(cls, session: SparkSession, schema: Any) -> "_StandIn":
        context: Any = session.sparkContext
        nothing = context._jsc.emptyRDD().rdd()  # noqa: SLF001  (Spark exposes it nowhere else)
        return cls(frame_of_rdd(session, nothing, schema), int(nothing.id()))


@dataclass(frozen=True)
class _Tree:
    """A plan, each of whose nodes was asked of the JVM once. A leaf of a stand-in has its number."""

    node: Node
    kind: str
    below: tuple["_Tree", ...]
    number: int | None

    @classmethod
    def of(cls, node: Node) -> "_Tree":
        kind, below = kind_of(node), tuple(map(cls.of, each_of(node.children())))
        return cls(node, kind, below, int(node.rdd().id()) if kind == "RDDScanExec" else None)

    def leaves(self) -> Iterator["_Tree"]:
        if not self.below:
            yield self
        for each in self.below:
            yield from each.leaves()

    def over(self, session: SparkSession, leaf: Callable[["_Tree"], Node], *, gathered: bool = False) -> Node:
        """The plan over other leaves, be they equal or not.

        `gathered`: their rows are in one partition. Spark does not know it, and would shuffle them between the two
        halves of an aggregation.
        """
        if not self.below:
            return leaf(self)
        below = [each.over(session, leaf, gathered=gathered) for each in self.below]
        if gathered and self.kind == self.below[0].kind == "HashAggregateExec":
            below = [java_class(session, f"{_EXECUTION}.CoalesceExec")(1, *below)]
        # A sequence for the JVM takes four calls to it.
        if len(below) == 1 and self.kind != "UnionExec":
            made = self.node.withNewChildInternal(below[0])
        else:
            made = self.node.withNewChildrenInternal(scala_seq(session, below).toIndexedSeq())
        return _tagged(made, self.node)


@dataclass(frozen=True)
class _Part:
    """What runs as one plan. `behind` stands for its rows where others read them."""

    session: SparkSession
    analysed: Any
    tree: _Tree
    behind: _StandIn | None

    @classmethod
    def of(cls, frame: DataFrame, behind: _StandIn | None) -> "_Part":
        return cls(frame.sparkSession, plan_of(frame), _Tree.of(java_frame(frame).queryExecution().sparkPlan()), behind)

    def over(self, leaves: Mapping[int, _Leaf], *, gathered: bool) -> Node:
        """The plan over other rows, by the numbers of what stands for them, as `_Tree.over`."""

        def leaf(there: _Tree) -> Node:
            return there.node if there.number is None else leaves[there.number](there.node)

        return self.tree.over(self.session, leaf, gathered=gathered)

    def stays(self, stand_ins: Collection[int]) -> bool:
        """Whether the plan is that of every micro-batch."""
        found = all(
            leaf.number in stand_ins if leaf.number is not None else leaf.kind in _CONSTANTS
            for leaf in self.tree.leaves()
        )
        return (
            found
            and bool(self.analysed.deterministic())
            and not has_pattern(self.session, self.analysed, "CURRENT_LIKE")
        )


def _read_by(session: SparkSession, reads: Any) -> Node:
    """The plan that reads a micro-batch, on the leaves whose rows Spark counts: those of the plan that it would run."""
    tree, counted = _Tree.of(reads.sparkPlan()), list(each_of(reads.executedPlan().collectLeaves()))
    own = list(tree.leaves())
    if [leaf.kind for leaf in own] != [kind_of(leaf) for leaf in counted]:
        return tree.node  # then its progress says that it has read nothing
    rows = iter(counted)
    return tree.over(session, lambda _: next(rows))


def _of_side(number: int, side: Node) -> tuple[Any, Node] | None:
    """The columns of an input, and the plan that they are of, from its side of the union.

    None: Spark has made another expression of the columns, such as a constant.
    """
    struct = side.projectList().apply(_COLUMNS_BEFORE + number).child()
    return (struct.valExprs(), side.child()) if kind_of(struct) == "CreateNamedStruct" else None


def _number_of_input(side: Node) -> int | None:
    """Which input it is a side of the union for; None: it does not say."""
    if kind_of(side) != "ProjectExec":
        return None
    number = side.projectList().apply(0)
    if kind_of(number) != "Alias" or kind_of(number.child()) != "Literal":
        return None
    return int(number.child().value())


def _tagged(made: Node, stands_for: Node) -> Node:
    """A node that we made, with the logical plan that another is of. Spark's rules ask for it."""
    made.copyTagsFrom(stands_for)
    return made


def _with_rdd(session: SparkSession, rows: Any, leaf: Node) -> Node:
    """The leaf with other rows."""
    context: Any = session.sparkContext
    count = leaf.productArity()
    parts = context._gateway.new_array(context._jvm.java.lang.Object, count)  # noqa: SLF001  (Spark exposes it nowhere else)
    for place in range(count):
        parts[place] = rows if leaf.productElementName(place) == "rdd" else leaf.productElement(place)
    return leaf.makeCopy(parts)


def _schemas(batch: DataFrame, stages: Sequence[Stage]) -> list[Any]:
    """The columns of each input that reads a source, as struct types in the JVM."""
    whole, count = java_frame(batch).schema(), len(source_inputs(stages))
    if count == 1:
        return [whole]
    return [whole.apply(columns_of_input(number)).dataType() for number in range(count)]
