"""A stream's run: checked, opened, then one term after another until there is a reason to end."""

from dataclasses import replace
from functools import partial

from dagster_ckpt.clock import Clock
from dagster_ckpt.errors import CorruptStateError
from dagster_ckpt.history.damage.damage_advice import with_advice
from dagster_ckpt.runtime.driver.spark_errors import secrets_left_out
from dagster_ckpt.runtime.driver.stream_checks import check_stream, open_as_stored
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobResult, StreamJob
from dagster_ckpt.runtime.driver.stream_work import StreamWork
from dagster_ckpt.runtime.driver.terms import RunContext, run_terms
from dagster_ckpt.runtime.spark.process_folder import remove_abandoned
from dagster_ckpt.runtime.task.worker_engine import check_cache
from dagster_ckpt.storage.chain.manifest_chain import ManifestChain
from dagster_ckpt.storage.operations.collector import Collector
from dagster_ckpt.storage.stores.folder import folder_store
from dagster_ckpt.storage.writer.stream_writer import open_stream


def run_stream(job: StreamJob, hooks: JobHooks, clock: Clock) -> JobResult:
    """Run a stream until its input is done, its time is up or `stop_reason` returns one. Blocks.

    Raises what ended it otherwise: `FencedError`, `InvalidPipelineError` and so on. An exception raised into this
    thread (an interrupt) ends it too, once the epoch in progress is finished or given up; the lease is closed then.
    After an error the lease is left to lapse, so that the sensor sees a stream to recover. `CorruptStateError` names
    the command that goes back to an epoch without the damaged object.
    """
    with secrets_left_out():
        return _run_stream(job, hooks, clock)


def _run_stream(job: StreamJob, hooks: JobHooks, clock: Clock) -> JobResult:
    checked = check_stream(job)
    remove_abandoned()
    root = job.address.open()
    store = folder_store(root, job.folder)
    check_cache(job.options.engine, store)
    chain, run = ManifestChain(store, clock), RunContext.begin(job.asset, job.options, hooks, clock)
    try:
        checked, opening = run.retry_opening(partial(open_as_stored, checked, chain, job))
        job = replace(job, stream=checked.stream)
        open_writer = partial(open_stream, store, opening, clock, run.pulse)
        collector = Collector(chain, root, job.options.grace_ms, job.options.max_lag)
        begin = partial(StreamWork.begin, job, checked, root)
        return run_terms(run, partial(run.retry_opening, open_writer), collector, begin)
    except CorruptStateError as error:
        # In its place, not caused by it: a reader of the innermost error alone must see the way back.
        better = with_advice(root, chain, job.asset, error)
        raise better.with_traceback(error.__traceback__) from error.__cause__
