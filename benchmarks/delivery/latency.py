"""From `produce` to visible in PostgreSQL: Kafka, a stream in Spark, a delivery in another process."""

import multiprocessing
import threading
import time
from bisect import bisect_left
from pathlib import Path

from adbc_driver_postgresql import dbapi

from benchmarks.delivery.topic import CONNECTOR, Topic
from benchmarks.delivery.written_stream import delivery_of
from benchmarks.ours import NAME, Ours
from benchmarks.session import start
from dagster_ckpt import Stream
from dagster_ckpt.clock import SystemClock
from dagster_ckpt.delivery.delivery_run import run_delivery
from dagster_ckpt.destinations import Postgres
from dagster_ckpt.runtime.driver.stream_job import JobHooks, JobOptions
from dagster_ckpt.runtime.run_mode import Mode
from dagster_ckpt.runtime.spark.session import open_session
from dagster_ckpt.storage.stores.address import StoreAddress

TABLE, NEWEST = "seen", "SELECT max(id) FROM seen"
INTERVAL_MS = 1_000
SEND_EVERY_S = 0.02
LOOK_EVERY_S = 0.005
WARM_S = 20.0
VISIBLE_S_MAX = 60.0


def measured(broker: str, database: str, folder: Path, seconds: float) -> list[float]:
    """Seconds of each row that was produced after the pipeline was warm, from `produce` until a query finds it.

    The stream commits and the delivery delivers once a second. Raises RuntimeError where rows do not arrive.
    """
    spark, topic = start(folder, CONNECTOR), Topic(broker, "latency", partitions=1)
    ended = threading.Event()
    hooks = JobHooks(stop_reason=lambda: "measured" if ended.is_set() else None)
    options = JobOptions(mode=Mode.CONTINUOUS, checkpoint_interval_ms=INTERVAL_MS)
    ours = Ours(Stream(topic.read(open_session(spark))), folder / "store")
    stream = threading.Thread(target=ours.run, args=(hooks, options), name="stream")
    delivery = multiprocessing.get_context("spawn").Process(
        target=_deliver, args=((folder / "store").as_uri(), database, options), daemon=True
    )
    topic.put_one(0)
    stream.start()
    delivery.start()
    try:
        sent, seen = _sent_and_seen(topic, database, WARM_S + seconds)
    finally:
        delivery.kill()
        delivery.join()
        ended.set()
        stream.join()
        spark.stop()
    moments, newest = [at_s for at_s, _ in seen], [id_ for _, id_ in seen]
    warm_s = sent[0] + WARM_S
    # The topic has one partition, so a row is visible when its id or a later one is.
    return [moments[bisect_left(newest, id_)] - at_s for id_, at_s in enumerate(sent, 1) if at_s >= warm_s]


def _deliver(store: str, database: str, options: JobOptions) -> None:
    to = Postgres(database, TABLE)
    job = delivery_of(NAME, StoreAddress(store), "in_postgres", to, options, epochs_max=100)
    run_delivery(job, JobHooks(), SystemClock())


def _sent_and_seen(topic: Topic, database: str, seconds: float) -> tuple[list[float], list[tuple[float, int]]]:
    """When each row from id 1 on was produced, and each moment at which a newer id became visible, with that id."""
    seen, sent, ended = list[tuple[float, int]](), list[float](), threading.Event()
    _until_visible(database)

    def watch() -> None:
        with dbapi.connect(database, autocommit=True) as connection, connection.cursor() as cursor:
            while not ended.is_set():
                cursor.execute(NEWEST)
                newest = cursor.fetchone()[0]
                if not seen or newest > seen[-1][1]:
                    seen.append((time.monotonic(), newest))
                time.sleep(LOOK_EVERY_S)

    watching = threading.Thread(target=watch, name="watch")
    watching.start()
    try:
        end_s = time.monotonic() + seconds
        while (began_s := time.monotonic()) < end_s:
            sent.append(topic.put_one(len(sent) + 1))
            time.sleep(max(0.0, began_s + SEND_EVERY_S - time.monotonic()))
        end_s = time.monotonic() + VISIBLE_S_MAX
        while not seen or seen[-1][1] < len(sent):
            if time.monotonic() > end_s:
                raise RuntimeError(f"not all rows have become visible. sent={len(sent)}, visible={seen[-1:]}")
            time.sleep(LOOK_EVERY_S)
    finally:
        ended.set()
        watching.join()
    return sent, seen


def _until_visible(database: str) -> None:
    """Until the pipeline has brought its first row."""
    end_s = time.monotonic() + 3 * VISIBLE_S_MAX
    with dbapi.connect(database, autocommit=True) as connection, connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT to_regclass($1) IS NOT NULL", [TABLE])
            if cursor.fetchone()[0]:
                cursor.execute(NEWEST)
                if cursor.fetchone()[0] is not None:
                    return
            if time.monotonic() > end_s:
                raise RuntimeError("no row has become visible")
            time.sleep(0.1)
