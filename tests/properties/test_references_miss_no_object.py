from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from hypothesis import given

from dagster_ckpt.protocol.manifest.manifest import ChangeRef, IndexRef, Manifest, RunRef
from dagster_ckpt.protocol.manifest.references import references
from tests.worlds.examples import examples
from tests.worlds.manifests import MANIFESTS


def refs_below(value: object) -> Iterator[object]:
    """Every reference in a value, found by its type alone."""
    if isinstance(value, RunRef | ChangeRef | IndexRef):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from refs_below(getattr(value, field.name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from refs_below(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from refs_below(each)


@examples(60)
@given(MANIFESTS)
def test_every_reference_in_a_manifest_is_enumerated(manifest: Manifest) -> None:
    found = [ref for _, ref in references(manifest)]
    assert sorted(map(repr, found)) == sorted(map(repr, refs_below(manifest)))
