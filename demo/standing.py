"""How far a stream has come, by what it has committed and nothing else."""

from dataclasses import dataclass

from dagster_ckpt import CheckpointStore, InvalidPipelineError


@dataclass(frozen=True, slots=True)
class Standing:
    """A stream's newest epoch: its number, how many there were, the rows and days of input that are in it.

    `consumed`: for each stream that it reads, the epoch up to which it has read it. It reads no days of its own.
    """

    epoch: int = 0
    epochs: int = 0
    rows: int = 0
    days: int = 0
    consumed: tuple[tuple[str, int], ...] = ()


def standing(store: CheckpointStore, stream: str) -> Standing:
    """Where `stream` stands now; empty if the stream was never opened."""
    try:
        history = store.stream(stream)
    except InvalidPipelineError:
        return Standing()
    newest = history.manifest()
    return Standing(
        epoch=newest.epoch,
        epochs=newest.statistics.total_epochs,
        rows=newest.statistics.total_rows_in,
        days=sum(
            len(source.files.tail) + sum(stretch.entries for stretch in source.files.index) for source in newest.sources
        ),
        consumed=tuple((each.stream, each.epoch) for each in newest.consumed),
    )
