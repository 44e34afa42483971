"""The rules of Spark's optimizer that leave a plan relational algebra."""

from functools import cached_property
from typing import Any

from dagster_ckpt.runtime.catalyst.builders.packages import Packages
from dagster_ckpt.runtime.catalyst.plan_text import without_seeds
from dagster_ckpt.runtime.catalyst.values import Java

_REWRITES = (
    "Finish Analysis",
    "Rewrite With expression",
    "Eliminate Distinct",
    "Inline CTE",
    "Union",
    "Pullup Correlated Expressions",
    "Subquery",
    "Replace Operators",
    "Aggregate",
    "Operator Optimization before Inferring Filters",
    "Infer Filters",
    "Operator Optimization after Inferring Filters",
    "Push extra predicate through join",
    "Clean Up Temporary CTE Info",
    "RewriteSubquery",
    "NormalizeFloatingNumbers",
    "ReplaceUpdateFieldsExpression",
    "Replace CTE with Repartition",
)
"""The optimizer's batches that leave a plan relational algebra. The whole optimizer refuses plans that stream."""
_SKIPPED = ("EliminateLimits", "PruneFilters")
"""Rules that take the source away from below what never has a row, such as WHERE false."""


class OptimizerRules:
    """Rewrites plans."""

    def __init__(self, jvm: Packages) -> None:
        self._jvm = jvm

    def rewrite(self, plan: Java) -> Java:
        """The plan as Spark's optimizer rewrites it, as far as that is algebra."""
        batches, skipped = ("\n".join(names) for names in (_REWRITES, _SKIPPED))
        return self._jvm.planner.rewritten(plan, self._jvm.state.optimizer(), batches, skipped)

    def prune(self, plan: Java) -> Java:
        """The plan without columns that nothing reads."""
        return self._jvm.rules.single("ColumnPruning").apply(plan)

    def collapse(self, plan: Java) -> Java:
        """The plan with filters below projections, each of them once, and without columns that nothing reads."""
        return self._jvm.planner.applied(plan, self._collapsing)

    def without_inner_names(self, plan: Java) -> Java:
        """The projection without names within its columns."""
        return self._jvm.planner.withoutInnerNames(plan)

    @cached_property
    def _collapsing(self) -> Any:
        names = ("PushDownPredicates", "ColumnPruning", "CollapseProject", "CombineFilters")
        return self._jvm.seq(map(self._jvm.rules.single, names))

    def collapse_structs(self, plan: Java) -> Java:
        """The plan as `collapsed` makes it, where a field of a struct that is made there is what it was made of."""
        plan = self._jvm.rules.single("SimplifyExtractValueOps").apply(self.collapse(plan))
        return self.collapse(plan)

    def without_seeds(self, plan: Java) -> Java:
        """The plan in which each seed of chance is 0."""
        return without_seeds(self._jvm.session, plan)
