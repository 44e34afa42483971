import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.ids import Epoch, Shard, Term, Version
from dagster_ckpt.protocol import object_names
from dagster_ckpt.protocol.object_names import FileId

part_lists = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), min_size=1, max_size=3)


@given(part_lists)
@example(["a/b"])
@example(["a", "b"])
@example(["a.b"])
@example([".."])
@example(["Ünïcode", "%41"])
@example(["\x00", "a\nb"])
def test_a_folder_is_read_back_as_the_parts_it_was_made_from(parts: list[str]) -> None:
    folder = object_names.folder_of(parts)
    assert object_names.parts_of(folder) == tuple(parts)
    assert object_names.is_object_name(folder)
    assert folder == folder.lower()
    assert "/" not in folder


def test_keys_that_differ_only_in_dots_slashes_or_case_get_different_folders() -> None:
    keys = [["a", "b"], ["a.b"], ["a/b"], ["A", "b"], ["a%2eb"], ["ab"]]
    assert len({object_names.folder_of(key) for key in keys}) == len(keys)


@given(st.lists(st.text(min_size=1), min_size=1))
@example(["a/b"])
@example(["a\\", "/"])
@example(["\n"])
def test_a_stream_name_is_read_back_as_the_parts_it_was_made_from(parts: list[str]) -> None:
    assert object_names.parts_of_name(object_names.name_of(parts)) == tuple(parts)


@pytest.mark.parametrize("name", ["", "/", "a//b", "/a", "a/", "a\\", "\\a"])
def test_a_name_that_no_stream_can_have_has_no_parts(name: str) -> None:
    assert object_names.parts_of_name(name) == ()


def test_a_plain_key_keeps_its_name() -> None:
    assert object_names.folder_of(["dev", "delay_by_carrier"]) == "dev.delay_by_carrier"
    assert object_names.folder_of(["Zürich"]) == "%5a%c3%bcrich"


@pytest.mark.parametrize("folder", ["", ".", "a..b", "A", "a%2", "a%zz", "%ff", "a/b", "%2E", "a b", ".tmp"])
def test_a_folder_that_was_not_made_here_is_not_read(folder: str) -> None:
    with pytest.raises(ValueError, match="not the folder of a stream"):
        object_names.parts_of(folder)


@pytest.mark.parametrize("parts", [[], [""], ["a", ""]])
def test_an_empty_part_is_refused(parts: list[str]) -> None:
    with pytest.raises(InvalidPipelineError, match="none may be empty"):
        object_names.folder_of(parts)


def test_a_key_too_long_for_a_file_system_is_refused_saying_so() -> None:
    with pytest.raises(InvalidPipelineError, match=r"shorten it\. bytes=300, bytes_max=255"):
        object_names.folder_of(["語" * 33, "ab"])


def test_manifests_and_leases_sort_by_number_and_are_read_back() -> None:
    assert object_names.manifest_name(Version(41)) == "manifest/00000000000000000041.json"
    assert object_names.parse_manifest_name(object_names.manifest_name(Version(2**63))) == 2**63
    assert object_names.lease_name(Term(7)) == "lease/00000000000000000007.json"
    assert object_names.parse_lease_name(object_names.lease_name(Term(7))) == 7
    assert object_names.manifest_name(Version(9)) < object_names.manifest_name(Version(10))


@pytest.mark.parametrize(
    "name",
    [
        "manifest/1.json",
        "lease/00000000000000000007.json",
        "manifest/probe-ab",
        "manifest/00000000000000000001.json.tmp",
    ],
)
def test_other_names_are_no_manifest(name: str) -> None:
    assert object_names.parse_manifest_name(name) is None


def test_a_file_name_identifies_its_writer_epoch_and_shard() -> None:
    file = FileId(Term(3), Epoch(4), Shard(5), 6)
    again = FileId(Term(3), Epoch(4), Shard(5), 6, number=2)
    assert object_names.state_name("total", (Shard(5),), 8, file) == "state/total/00005-of-00008/3-4-5-6.arrow"
    together = (Shard(4), Shard(5), Shard(6))
    assert object_names.state_name("total", together, 8, file) == "state/total/00004-00006-of-00008/3-4-5-6.arrow"
    assert object_names.changes_name(again) == "changes/3-4-5-6-2.parquet"
    assert object_names.index_name(file) == "index/3-4-5-6.json"


@given(st.builds(FileId, *[st.integers(0, 2**63)] * 5))
def test_who_wrote_a_file_is_read_from_its_name(file: FileId) -> None:
    for name in [
        object_names.state_name("a.b", (file.shard,), 8, file),
        object_names.changes_name(file),
        object_names.merged_name(3, file),
        object_names.index_name(file),
    ]:
        assert object_names.parse_file_name(name) == file
        assert object_names.is_object_name(name)


@pytest.mark.parametrize(
    "name",
    ["state/1-2-3-4.arrow", "changes/1-2-3.parquet", "pins/1-2-3-4.json", "changes/x", "", "table/1-2-3-4.parquet"],
)
def test_other_files_have_no_writer(name: str) -> None:
    assert object_names.parse_file_name(name) is None


def test_the_name_of_a_table_file_has_the_number_of_merges() -> None:
    file = FileId(Term(1), Epoch(2), Shard(0), 7)
    assert object_names.merged_name(12, file) == "table/12/1-2-0-7.parquet"
    assert object_names.merge_count(object_names.merged_name(12, file)) == 12
    assert object_names.merge_count(object_names.changes_name(file)) == 0


def test_a_name_a_user_chose_cannot_leave_its_folder() -> None:
    assert object_names.pin_name("../../x") == "pins/%2e%2e%2f%2e%2e%2fx.json"
    assert object_names.request_name("drain") == "requests/drain.json"
    assert object_names.subscriber_name("a.b") == "subscribers/a%2eb.json"
    assert object_names.is_object_name(
        object_names.state_name("../a", (Shard(0),), 1, FileId(Term(1), Epoch(2), Shard(0), 0))
    )


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "..", "a/../b", "a/.tmp", ".", "a\\b", "a\0b", "a\n", "a b"])
def test_names_that_leave_or_hide_are_no_object_names(name: str) -> None:
    assert not object_names.is_object_name(name)
