"""How the columns of a destination's table differ from the delivered ones, and what is done about it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from dagster_ckpt.delivery.destination import DeliveredTable, DeliveryMode, SchemaChanges
from dagster_ckpt.errors import IncompatibleStateError


@dataclass(frozen=True)
class ColumnThere:
    """A column of the destination's table. `required`: it takes no null and has no default."""

    type: str
    required: bool = False


@dataclass(frozen=True)
class Difference:
    """`missing` are delivered columns that the destination's table lacks; `misfits` say what only a replacement fixes.

    `columns` are the table's columns that do not fit. A column that is not delivered fits if a row may lack it.
    """

    missing: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    misfits: tuple[str, ...] = ()

    def check(self, destination: str, *, replaces: bool) -> None:
        """Raise `IncompatibleStateError` for what does not fit, unless all rows and columns are to be replaced."""
        if self.misfits and not replaces:
            raise IncompatibleStateError(
                f"the destination's table does not fit the stream: {'; '.join(self.misfits)}. Nothing was written. "
                "Alter the table; or give the delivery schema_changes='replace' if the stream was rolled back to "
                f"epoch 0, for then the delivery replaces all rows and the columns with them. destination={destination}"
            )


def may_replace(table: DeliveredTable) -> bool:
    """Whether a transaction that replaces all rows may replace the columns too."""
    return table.mode is DeliveryMode.UPSERT and table.schema_changes is SchemaChanges.REPLACE


def difference(
    table: DeliveredTable, wanted: Mapping[str, str], there: Mapping[str, ColumnThere], *, unique: bool = True
) -> Difference:
    """What is different `there`. `wanted` are the types of the delivered columns, in the destination's spelling.

    `unique` is whether the table holds one row of each delivered key.
    """
    misfits = {
        name: f"column {name} is {there[name].type}, and the stream's is {kind}"
        for name, kind in wanted.items()
        if name in there and there[name].type != kind
    }
    misfits |= {
        name: f"column {name} must have a value, and the stream has no such column"
        for name, column in there.items()
        if column.required and name not in wanted
    }
    missing = tuple(name for name in wanted if name not in there)
    of_key = () if unique else (f"nothing keeps the key {', '.join(table.key)} unique",)
    return Difference(missing, tuple(misfits), (*misfits.values(), *of_key))
