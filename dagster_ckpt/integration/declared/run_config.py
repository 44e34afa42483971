"""The run config of a streaming asset: our fields, and those of the user's Config."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg
import pydantic
from pydantic import Field

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.integration.declared.stream_options import run_mode
from dagster_ckpt.quantities import milliseconds
from dagster_ckpt.runtime.run_mode import Mode

RESERVED = ("mode", "run_for", "from_epoch", "take_over", "restart_steps", "rebuild", "rebuild_pace")

_MODE: Any = Literal["available_now", "continuous"]
_TEXT: Any = str | None
_NUMBER: Any = int | None
_SHARE: Any = float | None

ONCE = ("from_epoch", "take_over", "restart_steps")
"""Requested of one Dagster run only; no relaunch of it may repeat them."""

OF_A_REBUILD = ("rebuild", "rebuild_pace")
"""Requested until the stream is rebuilt: each relaunch goes on with it."""


@dataclass(frozen=True, slots=True)
class RunChoice:
    """The choices of the run config. `mode` and `run_for_ms` are None where the asset's apply.

    `rebuild_pace` is the part of the time that a rebuild may work: above 0, at most 1.
    """

    mode: Mode | None
    run_for_ms: int | None
    from_epoch: int | None
    take_over: bool
    restart_steps: bool = False
    rebuild: bool = False
    rebuild_pace: float = 1.0


def config_class(user: type[dg.Config] | None, mode: Mode, name: str) -> type[dg.Config]:
    """A Config with our fields and those of the user's: an instance of it is also one of the user's.

    Raises `InvalidPipelineError` if the user's has a field with one of our names.
    """
    taken = sorted(set(RESERVED) & set(user.model_fields)) if user else []
    if taken:
        raise InvalidPipelineError(
            f"these config fields are reserved by streaming assets: rename yours. fields={taken}"
        )
    return pydantic.create_model(
        f"{name}_config",
        __base__=user or dg.Config,
        mode=(
            _MODE,
            Field(
                str(mode),
                description="available_now: process the available input, then end. continuous: an epoch every "
                "interval, until it is stopped. Several streams in one Dagster run always run as available_now.",
            ),
        ),
        run_for=(
            _TEXT,
            Field(None, description="How long a continuous run lasts before it ends cleanly and the next is started."),
        ),
        from_epoch=(
            _NUMBER,
            Field(
                None,
                description="Roll the stream back to this epoch first; done once, even if Dagster retries the run.",
            ),
        ),
        take_over=(
            bool,
            Field(False, description="Fence a live writer instead of waiting for it to end; retries do not."),
        ),
        restart_steps=(
            bool,
            Field(
                False,
                description="Where steps of the stream have changed: keep the state of those before them, and start "
                "the changed ones over from its rows. Nothing is read again.",
            ),
        ),
        rebuild=(
            bool,
            Field(
                False,
                description="Rebuild the stream from the start of its sources alongside the live one, then switch over "
                "in one epoch, which contains the difference between the two tables.",
            ),
        ),
        rebuild_pace=(
            _SHARE,
            Field(
                None,
                description="The part of the time that a rebuild may work: 0.5 leaves half of it to the live stream.",
            ),
        ),
    )


def read_choice(config: Mapping[str, object]) -> RunChoice:
    """Our part of an op's config. Raises `InvalidPipelineError` for invalid values."""
    mode, run_for, from_epoch = (config.get(name) for name in ("mode", "run_for", "from_epoch"))
    if from_epoch is not None and (not isinstance(from_epoch, int) or from_epoch < 0):
        raise InvalidPipelineError(f"from_epoch must be an epoch, 0 or more. from_epoch={from_epoch!r}")
    pace = config.get("rebuild_pace")
    if pace is not None and (not isinstance(pace, int | float) or not 0 < pace <= 1):
        raise InvalidPipelineError(
            f"rebuild_pace must be above 0 and at most 1, a share of the time. rebuild_pace={pace!r}"
        )
    if from_epoch is not None and config.get("rebuild"):
        raise InvalidPipelineError(
            f"a rebuild begins with epoch 0 of its own: roll back first, or rebuild. from_epoch={from_epoch}"
        )
    return RunChoice(
        mode=None if mode is None else run_mode(str(mode)),
        run_for_ms=None if run_for is None else milliseconds(str(run_for), "run_for"),
        from_epoch=from_epoch,
        take_over=bool(config.get("take_over", False)),
        restart_steps=bool(config.get("restart_steps", False)),
        rebuild=bool(config.get("rebuild", False)),
        rebuild_pace=1.0 if pace is None else float(pace),
    )


def op_config(run_config: Mapping[str, object], op_name: str) -> Mapping[str, object]:
    """The config of one op in a Dagster run's config; empty where there is none."""
    config: object = run_config
    for step in ("ops", op_name, "config"):
        config = config.get(step) if isinstance(config, Mapping) else None
    return config if isinstance(config, Mapping) else {}
