import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dagster_ckpt.errors import InvalidPipelineError, OutsideCodeError
from dagster_ckpt.storage.stores.address import StoreAddress, check_reach, open_store


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "FILE://{}", "file://{}/", "file://{}/x/.."])
def test_a_file_url_opens_its_folder(form: str, tmp_path: Path) -> None:
    store = open_store(form.format(tmp_path))
    store.put("a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"
    assert store.url == f"file://{tmp_path}"


def test_opening_a_store_writes_nothing(tmp_path: Path) -> None:
    open_store(f"file://{tmp_path}/typo")
    assert list(tmp_path.iterdir()) == []


def test_an_address_opens_the_same_store_in_another_process(tmp_path: Path) -> None:
    address = StoreAddress(f"file://{tmp_path}")
    address.open().put("a", b"x")
    assert pickle.loads(pickle.dumps(address)).open().get("a") == b"x"


def test_memory_stores_are_shared_by_name() -> None:
    open_store("memory://shared-by-name").put("a", b"x")
    assert open_store("memory://shared-by-name").get("a") == b"x"
    assert not open_store("memory://another").exists("a")


@pytest.mark.parametrize("url", ["ftp://x/y", "simplecache::s3://x", "http://hunter2/", "ftp://user:hunter2@x"])
def test_a_store_without_a_proved_create_is_refused_without_telling_its_secrets(url: str) -> None:
    with pytest.raises(
        InvalidPipelineError, match=r"\(file:.*S3 \(s3:.*Azure \(abfs:.*proved against a real server"
    ) as caught:
        open_store(url, {"secret": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "instead"),
    [
        ("s3a://bucket/folder", "write s3://bucket/folder"),
        ("S3N://bucket/folder", "write s3://bucket/folder"),
        ("gcs://bucket/folder", "write gs://bucket/folder"),
        ("az://container/folder", "write abfs://container/folder"),
        ("abfss://hunter2@account.dfs.core.windows.net/folder", "write abfs://container/folder"),
        ("hdfs://hunter2@host:8020/folder", "write webhdfs://host:port/folder"),
        ("swebhdfs://host:9871/folder", "write webhdfs://host:port/folder, with use_https"),
    ],
)
def test_other_names_of_the_same_stores_are_corrected(url: str, instead: str) -> None:
    with pytest.raises(InvalidPipelineError, match=instead) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://bucket/a/folder", "S3://bucket/a/folder/", "s3://bucket//a/folder"])
def test_an_s3_url_names_a_bucket_and_a_folder(url: str) -> None:
    assert open_store(url).url == "s3://bucket/a/folder"
    assert open_store("s3://bucket").url == open_store("s3://bucket/").url == "s3://bucket"


def test_without_s3fs_an_s3_store_says_what_to_install() -> None:
    # A process of its own, since this one has loaded it. Local disk, and the package, must do without.
    code = """if True:
        import sys
        sys.modules["s3fs"] = None
        import dagster_ckpt
        from dagster_ckpt.errors import OutsideCodeError
        from dagster_ckpt.storage.stores.address import open_store
        open_store("file:///somewhere")
        try:
            open_store("s3://bucket/folder", {"secret": "hunter2"})
        except OutsideCodeError as error:
            print(error)
    """
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == (
        "an S3 store needs s3fs, on every host that opens it: pip install 'dagster-ckpt[s3]'. "
        "missing=s3fs, store=s3://bucket/folder\n"
    )


@pytest.mark.parametrize(
    ("url", "library", "said"),
    [
        ("gs://bucket/a", "gcsfs", r"needs gcsfs, .*'dagster-ckpt\[gcs\]'\. missing=(gcsfs|google)[.a-z]*"),
        ("abfs://bucket/a", "adlfs", r"needs adlfs, .*'dagster-ckpt\[azure\]'\. missing=(adlfs|azure)[.a-z]*"),
        (
            "webhdfs://host:9870/a",
            "requests",
            r"needs fsspec and requests, .*'dagster-ckpt\[hdfs\]'\. missing=requests",
        ),
    ],
)
def test_without_its_library_a_store_says_what_to_install(
    url: str, library: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gs", "azure", "webhdfs"):
        monkeypatch.delitem(sys.modules, f"dagster_ckpt.storage.stores.over_fsspec.{name}", raising=False)
    for name in [name for name in sys.modules if name.startswith(f"{library}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(OutsideCodeError, match=said + ", store=" + url):
        open_store(url)


def test_local_disk_loads_neither_s3fs_nor_botocore(tmp_path: Path) -> None:
    code = f"""if True:
        import sys
        from dagster_ckpt.storage.stores.address import open_store
        open_store("file://{tmp_path}").put("a", b"x")
        print([name for name in ("s3fs", "botocore", "aiohttp", "fsspec") if name in sys.modules])
    """
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("url", ["file://data/x", "file:data", "file:///", "file://", "/data/x", "data", ""])
def test_a_url_that_does_not_name_one_folder_is_refused(url: str) -> None:
    with pytest.raises(InvalidPipelineError, match="write file:///some/folder with three slashes"):
        open_store(url)


def test_options_are_never_shown(tmp_path: Path) -> None:
    address = StoreAddress(f"file://{tmp_path}", {"secret": "hunter2"})
    assert "hunter2" not in repr(address)
    with pytest.raises(
        InvalidPipelineError, match=r"takes no storage options but shared: remove them\. options=\['secret'\]"
    ) as caught:
        address.open()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*, 4]"])
def test_any_store_serves_executors_in_the_drivers_process(master: str) -> None:
    check_reach("file:///data", {}, master)


@pytest.mark.parametrize("master", ["spark://master:7077", "yarn", "k8s://https://api", "local-cluster[2,1,1024]"])
def test_executors_elsewhere_need_a_folder_that_is_said_to_be_shared(master: str) -> None:
    with pytest.raises(InvalidPipelineError, match=rf"store=file:///data, master={re.escape(master)}"):
        check_reach("file:///data", {}, master)
    with pytest.raises(InvalidPipelineError, match=r'say so with storage_options=\{"shared": True\}'):
        check_reach("FILE:///data", {"shared": False}, master)
    check_reach("file:///data", {"shared": True}, master)
    check_reach("s3://bucket/data", {}, master)


def test_only_a_file_store_is_shared_and_only_by_true_or_false(tmp_path: Path) -> None:
    assert StoreAddress(tmp_path.as_uri(), {"shared": True}).is_shared_folder
    assert not StoreAddress(tmp_path.as_uri(), {"shared": False}).is_shared_folder
    assert not StoreAddress("s3://bucket/folder", {"key": "k"}).is_shared_folder
    open_store(tmp_path.as_uri(), {"shared": True}).put("a", b"x")
    with pytest.raises(InvalidPipelineError, match=r"shared is True where every host.*type=str"):
        open_store(tmp_path.as_uri(), {"shared": "true"})
    with pytest.raises(InvalidPipelineError, match=r"no storage options: remove them\. options=\['shared'\]"):
        open_store("memory://x", {"shared": True})
    with pytest.raises(InvalidPipelineError, match=r"no such options: remove them\. options=\['shared'\]"):
        open_store("s3://bucket/x", {"shared": True})
