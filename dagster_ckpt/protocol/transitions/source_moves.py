"""Which source of a plan continues from which position: the one that reads the same, whatever its address is now.

A source's identity is what it reads. Its spelling changes if a folder or a bucket was moved, which the user declares
(`moved={"old": "new"}`). A Kafka source has its brokers in it only where a query reads topics of the same name from two
clusters: it continues without them. When a stream is opened, its positions take the identities of the plan. The record
of the files seen under the old address stays as it was written, with a note (`FilesMoved`) of how to read it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.epochs.upstream import FORMAT
from dagster_ckpt.protocol.manifest.manifest import FilesMoved, InputSpec, Pipeline, SourceIdentity, SourcePosition

Moves = tuple[tuple[str, str], ...]
"""Old and new addresses, or prefixes of them up to a `/`, as identities spell them."""

_KAFKA = "kafka"


def input_sources(inputs: Iterable[InputSpec]) -> tuple[SourceIdentity, ...]:
    """The distinct sources of a pipeline, in plan order."""
    return tuple(dict.fromkeys(source for each in inputs for source in each.sources))


def successors(
    known: Sequence[SourceIdentity], wanted: Sequence[SourceIdentity], moves: Moves
) -> dict[SourceIdentity, SourceIdentity]:
    """For each known source that the plan spells differently, its identity there. Equal sources keep their order.

    Raises `InvalidPipelineError` where a source would take the address of another one, which has moved on.
    """
    _refuse_chains(known, wanted, moves)
    free = [source for source in wanted if source not in known]
    found: dict[SourceIdentity, SourceIdentity] = {}
    for source in known:
        heir = None if source in wanted else next((each for each in free if _reads_the_same(source, each, moves)), None)
        if heir is not None:
            found[source] = heir
            free.remove(heir)
    return found


def _refuse_chains(known: Sequence[SourceIdentity], wanted: Sequence[SourceIdentity], moves: Moves) -> None:
    for source in known:
        if source not in wanted:
            continue
        to = [
            each.address for each in wanted if each.address != source.address and _reads_the_same(source, each, moves)
        ]
        of = [each.address for each in known if each.address != source.address and _reads_the_same(each, source, moves)]
        if to and of:
            raise InvalidPipelineError(
                "moved leads from one source of the stream to another, and from that one on: move the second in a "
                f"start of its own first. from={of[0]}, over={source.address}, to={to[0]}"
            )


def pipeline_gone_on(before: Pipeline, after: Pipeline, moves: Moves) -> Pipeline:
    """The pipeline that made a state, with its sources spelled as in the pipeline that continues it."""
    heirs = successors(input_sources(before.source_inputs), input_sources(after.source_inputs), moves)
    return _with_heirs(replace(before, before=tuple(_with_heirs(step, heirs) for step in before.before)), heirs)


def _with_heirs(step: Pipeline, heirs: Mapping[SourceIdentity, SourceIdentity]) -> Pipeline:
    inputs = (
        replace(each, sources=tuple(heirs.get(source, source) for source in each.sources)) for each in step.inputs
    )
    return replace(step, inputs=tuple(inputs))


def positions_gone_on(
    positions: Sequence[SourcePosition], pipeline: Pipeline, moves: Moves
) -> tuple[SourcePosition, ...]:
    """The positions, under the pipeline's identities for their sources. Unknown sources stay as they are."""
    heirs = successors([position.source for position in positions], input_sources(pipeline.source_inputs), moves)
    return tuple(
        position if position.source not in heirs else _continue(position, heirs[position.source])
        for position in positions
    )


def same_but_for_names(
    before: Sequence[SourcePosition], after: Sequence[SourcePosition], wanted: Sequence[SourceIdentity]
) -> bool:
    """Whether the positions are the same ones, each under its old identity or one of `wanted`."""
    return len(before) == len(after) and all(
        replace(now, source=was.source, moved=was.moved) == was
        and (now == was or (now.source in wanted and now.moved[: len(was.moved)] == was.moved))
        for was, now in zip(before, after, strict=True)
    )


def _continue(position: SourcePosition, heir: SourceIdentity) -> SourcePosition:
    files = position.files
    seen, moved = sum(ref.entries for ref in files.index) + len(files.tail), position.moved
    if seen and position.source.address != heir.address:
        old, new = _roots(position.source.address, heir.address)
        moved = (*moved, FilesMoved(old, new, seen))
    return replace(position, source=heir, moved=moved)


def _roots(old: str, new: str) -> tuple[str, str]:
    """Two addresses without their common last steps: what was moved is no pattern, but what is below it may be one."""
    olds, news = old.split("/"), new.split("/")
    while len(olds) > 1 and len(news) > 1 and olds[-1] == news[-1]:
        olds.pop()
        news.pop()
    return "/".join(olds), "/".join(news)


def _reads_the_same(known: SourceIdentity, wanted: SourceIdentity, moves: Moves) -> bool:
    if (known.format, known.options) != (wanted.format, wanted.options) or known.format == FORMAT:
        return False
    if known.format == _KAFKA and not wanted.address:
        return True
    reached = {known.address}
    for _ in moves:  # a folder may have been moved twice; the bound stops a move into itself
        reached |= {moved for address in reached for moved in _move(address, moves)}
    return wanted.address in reached


def _move(address: str, moves: Moves) -> Iterator[str]:
    for old, new in moves:
        if address == old or address.startswith(f"{old}/"):
            yield new + address[len(old) :]
