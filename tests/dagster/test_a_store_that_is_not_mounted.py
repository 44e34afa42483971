"""A host that has come up without the store's disk: the mount point is an empty folder."""

from tests.dagster.place import Place, failure_of


def test_a_stream_that_dagster_knows_does_not_begin_anew_in_an_empty_store(place: Place) -> None:
    counts = place.counts()
    place.drop(("a", 1))
    assert place.run(counts).success
    store = place.folder / "store"
    store.rename(place.folder / "the disk")
    store.mkdir()
    place.drop(("a", 2))
    result = place.run(counts)
    assert not list(store.iterdir()), "a second beginning of the stream, on the disk below the mount point"
    assert "mounted" in failure_of(result)
