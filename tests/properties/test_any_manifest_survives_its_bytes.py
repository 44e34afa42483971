from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from dagster_ckpt.errors import CorruptStateError, IncompatibleStateError
from dagster_ckpt.protocol.manifest.codec import (
    CHANGES,
    FILES_SEEN,
    decode_manifest,
    encode_manifest,
    is_read_back,
)
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, FileSeen, Manifest
from dagster_ckpt.protocol.manifest.packing import decode_entries, encode_pieces
from tests.worlds.examples import examples
from tests.worlds.manifests import MANIFESTS, a_manifest, any_record


@examples(40, 16)
@given(MANIFESTS)
def test_a_manifest_is_read_back_as_it_was(manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    assert decode_manifest(data, "m") == manifest
    assert encode_manifest(decode_manifest(data, "m")) == data


@examples(40, 16)
@given(MANIFESTS, MANIFESTS)
def test_what_is_read_back_is_told_from_any_other_manifest(manifest: Manifest, other: Manifest) -> None:
    data = encode_manifest(manifest)
    assert is_read_back(data, manifest)
    mixed = [replace(manifest, **{field.name: getattr(other, field.name)}) for field in fields(Manifest)]
    for each in (other, *mixed):
        assert is_read_back(data, each) == (each == manifest)


@examples(30, 12)
@given(st.lists(any_record(ChangeRef), max_size=5).map(tuple), st.lists(any_record(FileSeen), max_size=5).map(tuple))
def test_an_index_object_is_read_back_as_it_was(changes: tuple[ChangeRef, ...], files: tuple[FileSeen, ...]) -> None:
    pieces = [decode_entries(CHANGES, data, "i") for _, data in encode_pieces(CHANGES, changes)]
    assert sum(pieces, ()) == changes
    seen = [decode_entries(FILES_SEEN, data, "i") for _, data in encode_pieces(FILES_SEEN, files)]
    assert sum(seen, ()) == files


@examples(200, 80)
@given(st.data())
def test_a_flipped_bit_or_a_cut_end_is_never_read_as_another_manifest(data: st.DataObject) -> None:
    manifest = a_manifest()
    good = encode_manifest(manifest)
    bad = bytearray(good)
    if data.draw(st.booleans()):
        bad[data.draw(st.integers(0, len(good) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del bad[data.draw(st.integers(0, len(good) - 1)) :]
    try:
        assert decode_manifest(bytes(bad), "m") == manifest
    except (CorruptStateError, IncompatibleStateError) as error:
        assert isinstance(error, CorruptStateError)  # noqa: PT017
        assert "object=m" in str(error)  # noqa: PT017
