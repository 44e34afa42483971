"""Every error a user of dagster-ckpt can meet. Each message says what to do and ends in `key=value`.

CheckpointError
├── FencedError               another writer took over, or is live: stop
├── StoreUnavailableError     the object store did not answer: try again
├── CorruptStateError         an object is damaged: which file, which epoch is good
├── InvalidPipelineError      the pipeline cannot work as written: fix your code
├── OutsideCodeError          something outside of the code is missing or refuses: mend it there, it is tried again
├── IncompatibleStateError    the pipeline, or an upstream, no longer fits the state: what changed, how to go on
├── CheckpointTimeoutError    a shard was silent for too long: which shard, which host
└── CheckpointDeclinedError   a shard could not make its part of the epoch: which shard, which host, why
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class CheckpointError(Exception):
    """Base of everything dagster-ckpt raises on purpose."""


class FencedError(CheckpointError):
    """Another writer took over this stream, or is live and was left alone. This one has changed nothing and stops."""


class StoreUnavailableError(CheckpointError):
    """The object store did not answer in time. Nothing is lost: the same step may be tried again."""


class CorruptStateError(CheckpointError):
    """An object is missing, or its bytes are not those that were committed."""


class InvalidPipelineError(CheckpointError):
    """The stream, its options or its store cannot work as written. Nothing was started."""


class OutsideCodeError(CheckpointError):
    """What the stream needs outside of its code is missing or refuses: a driver, a right, a file, a constraint.

    A person mends it there. The same code is tried again at a slow pace, for ever.
    """


class IncompatibleStateError(CheckpointError):
    """The state cannot go on: its pipeline or an upstream is not as it was, or a newer release wrote it."""


class CheckpointTimeoutError(CheckpointError):
    """An epoch took longer than `timeout`: it was given up, nothing of it was committed."""


class CheckpointDeclinedError(CheckpointError):
    """A shard could not make its part of the epoch durable: nothing of the epoch was committed."""


@contextmanager
def naming(**names: str) -> Iterator[None]:
    """Within it an `InvalidPipelineError` has these names too: it ends in `, asset=flights` for `asset="flights"`.

    The code that raises it need not know whose fault it is.
    """
    try:
        yield
    except InvalidPipelineError as error:
        pairs = (f"{what}={name}" for what, name in names.items() if name)
        more = "".join(f", {pair}" for pair in pairs if f"{pair}," not in f"{error},")
        # In its place, not caused by it: a reader of the innermost error alone, as Dagster is, must see all.
        raise InvalidPipelineError(f"{error}{more}").with_traceback(error.__traceback__) from error.__cause__


def did_you_mean(name: object, there: Iterable[str]) -> str:
    """` Did you mean 'carrier'?` where one of those that there are is close, upper or lower case aside; or nothing.

    To be written right after a sentence.
    """
    names = list(there)
    near = get_close_matches(str(name).casefold(), [each.casefold() for each in names], n=1)
    return next((f" Did you mean {each!r}?" for each in names if near == [each.casefold()]), "")
