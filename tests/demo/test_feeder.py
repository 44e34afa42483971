"""Days are dropped whole, in order, at the pace that was asked for."""

import threading
from pathlib import Path

from demo.feeder import Feeder, drop


def some_days(folder: Path, count: int) -> list[Path]:
    folder.mkdir()
    days = [folder / f"{number:03}.parquet" for number in range(count)]
    for day in days:
        day.write_bytes(day.name.encode())
    return days


def fed(inbox: Path) -> list[str]:
    return sorted(day.name for day in inbox.iterdir())


def test_a_dropped_day_is_the_same_bytes_and_stays_where_it_was(tmp_path: Path) -> None:
    (day,) = some_days(tmp_path / "days", 1)
    drop(day, tmp_path / "inbox")
    assert (tmp_path / "inbox" / day.name).read_bytes() == day.read_bytes()
    assert list((tmp_path / "inbox.staging").iterdir()) == []


def test_a_reader_never_sees_half_a_day(tmp_path: Path) -> None:
    day = tmp_path / "day.parquet"
    day.write_bytes(bytes(8_000_000))
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    sizes: set[int] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            sizes.update(file.stat().st_size for file in inbox.iterdir())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(20):
        drop(day, inbox)
    stop.set()
    watcher.join()
    assert sizes == {8_000_000}


def test_days_come_in_order_at_the_pace_asked_for(tmp_path: Path) -> None:
    feeder = Feeder(some_days(tmp_path / "days", 10), tmp_path / "inbox", days_per_second=4)
    feeder.feed(now_s=100.0, until=10)
    assert feeder.fed == 0
    feeder.feed(now_s=100.5, until=10)
    assert fed(tmp_path / "inbox") == ["000.parquet", "001.parquet"]
    feeder.feed(now_s=101.0, until=10)
    assert feeder.fed == 4


def test_a_long_pause_is_not_made_up_for(tmp_path: Path) -> None:
    feeder = Feeder(some_days(tmp_path / "days", 100), tmp_path / "inbox", days_per_second=4)
    feeder.feed(now_s=0.0, until=100)
    feeder.feed(now_s=60.0, until=100)
    assert feeder.fed == 4


def test_no_more_days_are_fed_than_allowed(tmp_path: Path) -> None:
    feeder = Feeder(some_days(tmp_path / "days", 3), tmp_path / "inbox", days_per_second=10)
    feeder.feed(now_s=0.0, until=2)
    feeder.feed(now_s=1.0, until=2)
    assert (feeder.fed, feeder.done) == (2, False)
    feeder.feed(now_s=2.0, until=10)
    assert (feeder.fed, feeder.done) == (3, True)
