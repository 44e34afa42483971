"""The command `dagster-ckpt`: what a store holds, for people and (`--json`) for programs."""

from dagster_ckpt.cli.command import main

__all__ = ["main"]
