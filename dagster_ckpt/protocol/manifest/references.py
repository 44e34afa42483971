"""Every object that a manifest names, in one list that the collector, the rules, `verify` and damage advice filter.

The collector deletes a file whose reference is missing here, so a property test walks the manifest's fields and
compares. Index objects list further files (`FILES_INDEX`) or what a source has seen (`SEEN_INDEX`): the list has these
objects, but not their entries.

Also what a reader needs of a manifest, without the references that it has no use for.
"""

from collections.abc import Iterator
from dataclasses import replace
from enum import Enum, auto
from typing import NamedTuple

from dagster_ckpt.ids import StreamUuid
from dagster_ckpt.protocol.manifest.manifest import ChangeRef, IndexedList, IndexRef, Manifest, RunRef


class Role(Enum):
    """Why a manifest names an object."""

    RUN = auto()
    CHANGES = auto()
    FILE = auto()
    FILES_INDEX = auto()
    SEEN_INDEX = auto()


class Reference(NamedTuple):
    """One place of a manifest that names an object; several places may name the same one."""

    role: Role
    ref: RunRef | ChangeRef | IndexRef


def references(manifest: Manifest) -> Iterator[Reference]:
    """All of them: state, change log, the table of an append-only stream, index objects."""
    yield from (Reference(Role.RUN, run) for run in runs_of(manifest))
    yield from (Reference(Role.CHANGES, change) for change in manifest.changes)
    yield from (Reference(Role.FILE, file) for file in manifest.files.tail)
    yield from (Reference(Role.FILES_INDEX, index) for index in manifest.files.index)
    yield from (Reference(Role.SEEN_INDEX, index) for source in manifest.sources for index in source.files.index)


def runs_of(manifest: Manifest) -> Iterator[RunRef]:
    """The runs of all tables and shards; a run that several shards share comes once for each."""
    return (run for shards in manifest.runs.values() for runs in shards for run in runs)


def ancestors_named(manifest: Manifest) -> set[StreamUuid]:
    """The other streams whose objects the manifest names itself. Its index objects may name further ones."""
    named = {run.ancestor for run in runs_of(manifest)}  # thousands of runs, in each commit
    named |= {ref.ancestor for _, ref in references(replace(manifest, runs={}))}
    return {ancestor for ancestor in named if ancestor is not None}


def table_alone(manifest: Manifest) -> Manifest:
    """What a task needs of a manifest to read its table. It is sent to every task."""
    return replace(manifest, changes=(), sources=(), consumed=(), retained=(), abandoned=(), rollbacks=())


def changes_alone(manifest: Manifest) -> Manifest:
    """What a task needs of a manifest to read its change log."""
    return replace(table_alone(manifest), changes=manifest.changes, runs={}, files=IndexedList())
