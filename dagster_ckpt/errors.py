"""Every error a user of dagster-ckpt can meet. Each message says what to do and ends in `key=value`.

CheckpointError
├── FencedError               another writer took over: stop
├── StoreUnavailableError     the object store did not answer: try again
├── CorruptStateError         an object is damaged: which file, which epoch is good
├── InvalidPipelineError      the pipeline cannot work as written: fix your code
├── IncompatibleStateError    the pipeline no longer fits its state: what changed, how to migrate
├── CheckpointTimeoutError    a shard was silent for too long: which shard, which host
└── CheckpointDeclinedError   a shard could not make its part of the epoch: which shard, which host, why
"""


class CheckpointError(Exception):
    """Base of everything dagster-ckpt raises on purpose."""


class FencedError(CheckpointError):
    """Another writer took over this stream. This writer has changed nothing since; it must stop."""


class StoreUnavailableError(CheckpointError):
    """The object store did not answer in time. Nothing is lost: the same step may be tried again."""


class CorruptStateError(CheckpointError):
    """An object is missing, or its bytes are not those that were committed."""


class InvalidPipelineError(CheckpointError):
    """The stream, its options or its store cannot work as written. Nothing was started."""


class IncompatibleStateError(CheckpointError):
    """The pipeline's keys, aggregates or inputs are not those its state was made with."""


class CheckpointTimeoutError(CheckpointError):
    """An epoch took longer than `timeout`: it was given up, nothing of it was committed."""


class CheckpointDeclinedError(CheckpointError):
    """A shard could not make its part of the epoch durable: nothing of the epoch was committed."""
