"""Plans of aggregates that need all values of a group."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from dagster_ckpt.operators.aggregates.bags.bags import BagFunction, BagResult, RowBag
from dagster_ckpt.operators.aggregates.spec import AggregatePlan, Plan, Request


@dataclass(frozen=True)
class BagPlan:
    """What to compute of the bag of some columns.

    `options` distinguish it from other results of the same function and columns. `required` is as in `bags.usable`, by
    default all columns. `empty` is the value of a group without a row in the bag. With a `limit` the first rows do.
    """

    columns: tuple[str, ...]
    field: pa.Field
    function: BagFunction
    options: tuple[object, ...] = ()
    required: int | None = None
    empty: pa.Scalar | None = None
    limit: int | None = None

    @property
    def required_columns(self) -> int:
        return len(self.columns) if self.required is None else self.required


OfBag = Callable[[Request], BagPlan]


def beside(of_bag: OfBag) -> Plan:
    """The bag in a table beside the row of the group."""

    def plan(request: Request) -> AggregatePlan:
        of = of_bag(request)
        name = f"_{request.aggregation.function}({json.dumps([*of.columns, *of.options])})"
        result = BagResult(name, of.columns, of.field.type, of.function, of.required_columns, of.empty)
        return AggregatePlan(of.field, (result,), lambda state: state[name])

    return plan


def within(of_bag: OfBag) -> Plan:
    """The bag in the row of the group."""

    def plan(request: Request) -> AggregatePlan:
        of = of_bag(request)
        bag = RowBag(of.columns, tuple(request.types[name] for name in of.columns), of.required_columns, of.limit)
        return AggregatePlan(of.field, (bag,), lambda state: of.function(bag.bags(state)))

    return plan
