"""How a stream runs, and which checks of its table run when: attributes of a stream and of a folder of them in SQL."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import BaseModel

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.component.templates import load_object, text, texts_by_name
from dagster_ckpt.integration.epoch_checks import EpochChecks, epoch_checks

Mode = Annotated[
    Literal["available_now", "continuous"],
    dg.Resolver.default(description="Process the available input, then end; or commit an epoch every interval."),
]
CheckpointInterval = Annotated[str | None, text("The time between two epochs of a continuous stream.")]
Autostart = Annotated[
    bool, dg.Resolver.default(description="The sensor also starts a continuous stream that has never run.")
]
RunFor = Annotated[str, text("A continuous run ends cleanly after this, and the next one begins.")]
Shards = Annotated[
    int, dg.Resolver.default(description="Hash partitions of the keys, a power of two; fixed once there is state.")
]
Moved = Annotated[dict[str, str], texts_by_name("The old addresses of source folders or buckets, and the new ones.")]


class CheckSchedule(dg.Model, dg.Resolvable):
    """An asset check of the stream, and when it runs: after every so many epochs, or at the times of a schedule."""

    check: Annotated[
        str,
        text(
            "The Python path of an asset check; with a leading dot relative to the component's folder.",
            examples=[".checks.delays_are_plausible"],
        ),
    ]
    every_epochs: Annotated[
        int | None, dg.Resolver.default(description="Run it with the first epoch and then after every so many.")
    ] = None
    cron: Annotated[str | None, text("Run it at the times of this cron schedule.")] = None


def _checks(
    context: dg.ResolutionContext, given: Sequence[str | BaseModel]
) -> list[dg.AssetChecksDefinition | EpochChecks]:
    """Checks with one rhythm become one group, which runs as one job."""
    plain: list[dg.AssetChecksDefinition | EpochChecks] = []
    groups: dict[tuple[int | None, str | None], list[dg.AssetChecksDefinition]] = {}
    for number, each in enumerate(given):
        one = (
            CheckSchedule(check=each)
            if isinstance(each, str)
            else CheckSchedule.resolve_from_model(context.at_path(number), each)
        )
        check = load_object(context, one.check)
        if not isinstance(check, dg.AssetChecksDefinition):
            raise InvalidPipelineError(
                f"checks names asset checks, as @dg.asset_check makes them. check={one.check}, "
                f"found={type(check).__name__}"
            )
        if one.every_epochs is None and one.cron is None:
            plain.append(check)
        else:
            groups.setdefault((one.every_epochs, one.cron), []).append(check)
    return [
        *plain,
        *(
            epoch_checks(checks, every_epochs=every_epochs, cron=cron)
            for (every_epochs, cron), checks in groups.items()
        ),
    ]


StreamChecks = Annotated[
    list[Any],
    dg.Resolver(
        _checks,
        model_field_type=list[str | CheckSchedule.model()],  # type: ignore[misc]
        description="Asset checks of the stream's table, which run against committed epochs while the stream runs.",
        examples=[[".checks.delays_are_plausible", {"check": ".checks.all_fly", "cron": "0 6 * * *"}]],
    ),
]
