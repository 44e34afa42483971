"""Dagster's pools: the slot that a killed worker still holds is freed, and a slot that stays taken is reported.

Where a pool is limited by op, which is Dagster's default, a step holds a slot from its start to its end. A worker that
was killed frees nothing, and Dagster keeps the next run in its queue without reporting why.
"""

import dagster as dg

from dagster_ckpt.integration.recovery.dagster_runs import StreamAsset
from dagster_ckpt.integration.recovery.decision import PoolView


def full_pool(instance: dg.DagsterInstance, asset: StreamAsset, run_id: str) -> PoolView | None:
    """The asset's pool if it has no slot for this run; None if it has one, or there is no limit.

    First frees the slots that finished runs hold for the asset's step. A crash in between leaves that to the next tick.
    """
    storage = instance.event_log_storage
    if asset.pool is None or not storage.supports_global_concurrency_limits:
        return None
    for slot in storage.get_concurrency_info(asset.pool).claimed_slots:
        if slot.step_key == asset.op_name and slot.run_id != run_id and _has_ended(instance, slot.run_id):
            storage.free_concurrency_slots_for_run(slot.run_id)
    info = storage.get_concurrency_info(asset.pool)
    holders = [slot.run_id for slot in info.claimed_slots]
    if info.limit is None or len(holders) < info.limit or run_id in holders:
        return None
    ended = tuple(holder for holder in holders if _has_ended(instance, holder))
    return PoolView(asset.pool, info.limit, tuple(holders), ended)


def _has_ended(instance: dg.DagsterInstance, run_id: str) -> bool:
    run = instance.get_run_by_id(run_id)
    return run is None or run.is_finished
