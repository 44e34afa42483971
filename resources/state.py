"""The state engine's share of the machine."""

from dagster_ckpt import LsmStateBackendResource

state = LsmStateBackendResource(memory_limit="128 MiB")
