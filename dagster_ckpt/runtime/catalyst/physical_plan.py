"""Physical plans that Spark makes once, and that are put on the rows of one micro-batch after another."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dagster_ckpt.runtime.catalyst.trees import each_of, has_pattern, kind_of, nodes, plan_of
from dagster_ckpt.runtime.catalyst.values import Java
from dagster_ckpt.runtime.spark.jvm import frame_of_rdd, java_class, java_frame, java_session, scala_seq

_Node = Any
"""A node of a physical plan, in the JVM."""
_Leaf = Callable[[_Node], _Node]
"""What is put in the place of a leaf."""
Cut = Callable[[DataFrame], DataFrame]
"""What stands for rows that several read: they are after a shuffle, and made once."""

_SQL = "org.apache.spark.sql"
_EXPRESSIONS = f"{_SQL}.catalyst.expressions"
_EXECUTION = f"{_SQL}.execution"
_CONSTANTS = ("LocalTableScanExec", "OneRowRelationExec", "RangeExec")
"""Leaves that are the same in every epoch."""
_COLUMNS_BEFORE = 2
"""A union of inputs has the input's number and a hash, then a struct of each input."""


@dataclass(frozen=True)
class PlannedRows:
    """A physical plan, ready to run in its session. `properties` are those that its job gets."""

    sparkSession: SparkSession  # noqa: N815  (as a DataFrame has it)
    plan: Any
    properties: Mapping[str, str] = field(default_factory=dict)

    def rdd(self) -> Any:
        """Its rows. A broadcast below it runs now."""
        return self.plan.execute()


def rows_of(frame: DataFrame | PlannedRows) -> Any:
    """The RDD of the frame. `foreachBatch` hands over one that is made: to collect its frame would plan it again."""
    if isinstance(frame, PlannedRows):
        return frame.rdd()
    plan: Any = plan_of(frame)
    return plan.rdd() if kind_of(plan) == "LogicalRDD" else java_frame(frame).queryExecution().toRdd()


def execution_of(frame: DataFrame) -> Java:
    """All of Spark's plans of a DataFrame."""
    return java_frame(frame).queryExecution()


def shuffles(execution: Java) -> bool:
    """Whether rows are shuffled in the plan that runs."""
    own: Any = execution
    return any(kind_of(node) == "ShuffleExchangeExec" for node in nodes(own.executedPlan()))


def with_unknown_rows(batch: DataFrame) -> DataFrame:
    """The rows of a micro-batch as those of an RDD, of which Spark knows nothing.

    It knows how few rows a batch has. It would take those of a step for the table of a join, and run the tasks of the
    step in a job of its own.
    """
    return frame_of_rdd(batch.sparkSession, rows_of(batch), java_frame(batch).schema())


def read_once(rows: DataFrame) -> DataFrame:
    """Rows after a shuffle as its RDD: Spark runs the tasks before a shuffle once in a job."""
    frame = java_frame(rows)
    return frame_of_rdd(rows.sparkSession, frame.queryExecution().toRdd(), frame.schema())


class PhysicalPlan:
    """What is made of the rows of a micro-batch, planned once.

    `schemas` are the columns of each input (`schemas_of_inputs`), none where the plan reads its rows itself. `work`
    makes the result of a DataFrame for each input. It is cut where `work` says so, after each step that several read:
    the rows of such a part are made after a shuffle, and are a leaf of those that read it. `gathers`: a batch of one
    partition is not shuffled between the two halves of an aggregation.
    """

    def __init__(
        self,
        session: SparkSession,
        schemas: Sequence[Java],
        work: Callable[[Sequence[DataFrame], Cut], DataFrame],
        *,
        gathers: bool = False,
    ) -> None:
        self._session = session
        self._inputs = [_StandIn.of(session, schema) for schema in schemas]
        self._parts: list[_PlanPart] = []
        whole = work([each.frame for each in self._inputs], self._cut)
        self._parts.append(_PlanPart.of(whole, None))
        self._gathers = gathers
        self._renamed: dict[int, tuple[Any, Any]] = {}

    @property
    def stays(self) -> bool:
        """Whether it is that of every micro-batch: it has no table beside the stream, no time of day, no chance."""
        stand_ins = {each.number for each in self._inputs}
        stand_ins.update(part.result.number for part in self._parts if part.result is not None)
        return all(part.stays(stand_ins) for part in self._parts)

    def on(self, batch: DataFrame, execution: Java) -> PlannedRows:
        """What comes of a micro-batch. `execution` has the plans that read its rows from the sources."""
        read = _reading_plan(self._session, execution)
        gathered = self._gathers and rows_of(batch).getNumPartitions() == 1
        leaves: dict[int, _Leaf] = {
            stand_in.number: partial(self._renaming, stand_in.number, *each)
            for stand_in, each in zip(self._inputs, self._of_inputs(read), strict=True)
        }
        return self._ready(leaves, gathered=gathered)

    def alone(self, properties: Mapping[str, str]) -> PlannedRows:
        """What comes of rows that the plan reads itself, in a job with these properties."""
        return replace(self._ready({}), properties=properties)

    def _ready(self, leaves: dict[int, _Leaf], *, gathered: bool = False) -> PlannedRows:
        """The plan over these leaves, by the numbers of what stands for them."""
        execution_class, own = java_class(self._session, f"{_EXECUTION}.QueryExecution"), java_session(self._session)
        *cut, last = self._parts
        for part in cut:
            assert part.result is not None, "only the last part has no readers"
            rows = execution_class.prepareExecutedPlan(own, part.over(leaves, gathered=gathered)).execute()
            leaves[part.result.number] = partial(_with_rdd, self._session, rows)
        return PlannedRows(
            self._session, execution_class.prepareExecutedPlan(own, last.over(leaves, gathered=gathered))
        )

    def _cut(self, rows: DataFrame) -> DataFrame:
        """A stand-in for rows that several read, which are after a shuffle."""
        stand_in = _StandIn.of(self._session, java_frame(rows).schema())
        self._parts.append(_PlanPart.of(rows, stand_in))
        return stand_in.frame

    def _of_inputs(self, read: _Node) -> Iterator[tuple[Any, _Node]]:
        """The columns of each input, and the plan that they are of."""
        if len(self._inputs) == 1:
            yield read.output(), read
            return
        sides: dict[int | None, list[_Node]] = {}
        for side in each_of(read.children()) if kind_of(read) == "UnionExec" else ():
            sides.setdefault(_number_of_input(side), []).append(side)
        for number in range(len(self._inputs)):
            # An input may be a union itself, and Spark makes one of both; a side that does not say may be of any input.
            own = sides.get(number, []) if None not in sides else []
            yield (_of_side(number, own[0]) if len(own) == 1 else None) or self._of_union(number, read)

    def _of_union(self, number: int, read: _Node) -> tuple[Any, _Node]:
        """The same of one input, from all rows."""
        session, output = self._session, read.output()
        wanted = java_session(session).sessionState().sqlParser().parseExpression(str(number))
        is_own = java_class(session, f"{_EXPRESSIONS}.EqualTo")(output.apply(0), wanted)
        struct, field = output.apply(_COLUMNS_BEFORE + number), java_class(session, f"{_EXPRESSIONS}.GetStructField")
        none = java_class(session, "scala.Option").empty()
        columns = [field(struct, place, none) for place in range(struct.dataType().length())]
        return scala_seq(session, columns), _with_tags(
            java_class(session, f"{_EXECUTION}.FilterExec")(is_own, read), read
        )

    def _renaming(self, number: int, columns: Any, rows: _Node, leaf: _Node) -> _Node:
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
        return _with_tags(java_class(session, f"{_EXECUTION}.ProjectExec")(known[1], rows), leaf)


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

    node: _Node
    kind: str
    below: tuple["_Tree", ...]
    number: int | None

    @classmethod
    def of(cls, node: _Node) -> "_Tree":
        kind, below = kind_of(node), tuple(map(cls.of, each_of(node.children())))
        return cls(node, kind, below, int(node.rdd().id()) if kind == "RDDScanExec" else None)

    def leaves(self) -> Iterator["_Tree"]:
        if not self.below:
            yield self
        for each in self.below:
            yield from each.leaves()

    def over(self, session: SparkSession, leaf: Callable[["_Tree"], _Node], *, gathered: bool = False) -> _Node:
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
        return _with_tags(made, self.node)


@dataclass(frozen=True)
class _PlanPart:
    """What runs as one plan. `result` stands for its rows where others read them."""

    session: SparkSession
    analysed: Any
    tree: _Tree
    result: _StandIn | None

    @classmethod
    def of(cls, frame: DataFrame, result: _StandIn | None) -> "_PlanPart":
        return cls(frame.sparkSession, plan_of(frame), _Tree.of(java_frame(frame).queryExecution().sparkPlan()), result)

    def over(self, leaves: Mapping[int, _Leaf], *, gathered: bool) -> _Node:
        """The plan over other rows, by the numbers of what stands for them, as `_Tree.over`."""

        def leaf(there: _Tree) -> _Node:
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


def _reading_plan(session: SparkSession, execution: Any) -> _Node:
    """The plan that reads a micro-batch, on the leaves whose rows Spark counts: those of the plan that it would run."""
    tree, counted = _Tree.of(execution.sparkPlan()), list(each_of(execution.executedPlan().collectLeaves()))
    own = list(tree.leaves())
    if [leaf.kind for leaf in own] != [kind_of(leaf) for leaf in counted]:
        return tree.node  # then its progress says that it has read nothing
    rows = iter(counted)
    return tree.over(session, lambda _: next(rows))


def _of_side(number: int, side: _Node) -> tuple[Any, _Node] | None:
    """The columns of an input, and the plan that they are of, from its side of the union.

    None: Spark has made another expression of the columns, such as a constant.
    """
    struct = side.projectList().apply(_COLUMNS_BEFORE + number).child()
    return (struct.valExprs(), side.child()) if kind_of(struct) == "CreateNamedStruct" else None


def _number_of_input(side: _Node) -> int | None:
    """The input that a branch of the union stands for; None if it does not say."""
    if kind_of(side) != "ProjectExec":
        return None
    number = side.projectList().apply(0)
    if kind_of(number) != "Alias" or kind_of(number.child()) != "Literal":
        return None
    return int(number.child().value())


def _with_tags(made: _Node, stands_for: _Node) -> _Node:
    """A node that we made, with the logical plan that another is of. Spark's rules ask for it."""
    made.copyTagsFrom(stands_for)
    return made


def _with_rdd(session: SparkSession, rows: Any, leaf: _Node) -> _Node:
    """The leaf with other rows."""
    context: Any = session.sparkContext
    count = leaf.productArity()
    parts = context._gateway.new_array(context._jvm.java.lang.Object, count)  # noqa: SLF001  (Spark exposes it nowhere else)
    for place in range(count):
        parts[place] = rows if leaf.productElementName(place) == "rdd" else leaf.productElement(place)
    return leaf.makeCopy(parts)


def schemas_of_inputs(batch: DataFrame, inputs: Sequence[str]) -> list[Java]:
    """The columns of each input of a micro-batch, as struct types in the JVM.

    `inputs` are the names of structs in which it has those of each of several inputs, or empty: it has those of one.
    """
    whole = java_frame(batch).schema()
    return [Java(whole.apply(name).dataType()) for name in inputs] or [whole]
