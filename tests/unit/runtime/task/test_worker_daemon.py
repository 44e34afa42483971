from pathlib import Path

from dagster_ckpt.runtime.task.worker_daemon import without_archives


def test_the_installed_package_comes_in_place_of_its_archives(tmp_path: Path) -> None:
    installed, archives = tmp_path / "site-packages", tmp_path / "site-packages/pyspark/python/lib"
    archives.mkdir(parents=True)
    (installed / "pyspark/__init__.py").touch()
    path = [
        "",
        str(archives / "pyspark.zip"),
        str(archives / "py4j-src.zip"),
        str(tmp_path / "mine.zip"),
        str(installed),
    ]
    assert without_archives(path) == ["", str(tmp_path / "mine.zip"), str(installed)]


def test_an_archive_of_another_spark_stays(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    (installed / "pyspark").mkdir(parents=True)
    (installed / "pyspark/__init__.py").touch()
    path = [str(tmp_path / "spark/python/lib/pyspark.zip"), str(installed)]
    assert without_archives(path) == path


def test_without_an_installed_package_its_archive_stays(tmp_path: Path) -> None:
    path = [str(tmp_path / "pyspark/python/lib/pyspark.zip"), str(tmp_path)]
    assert without_archives(path) == path
