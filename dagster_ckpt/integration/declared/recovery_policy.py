"""How a stream recovers from a crash: the user's settings."""

from dataclasses import dataclass

from dagster_ckpt.errors import InvalidPipelineError
from dagster_ckpt.protocol.lease import LEASE_TIMEOUT_MS_MAX
from dagster_ckpt.quantities import Duration, milliseconds

START_TIMEOUT_MS = 180_000
"""A step that has not opened its stream this long after its start never will: Spark needs seconds.

The same holds for a run that Dagster dequeued and whose worker never reported: Dagster may have been killed while it
launched the run. Dagster's run monitoring, where it is on, has the same timeout.
"""


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a stream recovers from a crash.

        streaming_asset(recovery=Recovery(max_attempts=10, lease_timeout="1 minute"))(delay_by_carrier)

    It is relaunched up to `max_attempts` times in a row without a committed epoch; then it waits for a person. The
    first relaunch follows at once, the second after `backoff`, each further one after twice the time, at most
    `backoff_max`. `same_error_max` runs in a row that failed with the same error are a crash loop, which ends it
    earlier. While the store or Spark's master does not answer, neither bound counts: relaunches continue, in the end
    `backoff_max` apart. A writer whose lease was not renewed for `lease_timeout` is taken for dead; a live one renews
    it three times as often.

    Raises `InvalidPipelineError` for values that cannot work.
    """

    max_attempts: int = 5
    same_error_max: int = 3
    backoff: Duration = "5s"
    backoff_max: Duration = "5min"
    lease_timeout: Duration = "30s"

    def __post_init__(self) -> None:
        if self.max_attempts < 0:
            raise InvalidPipelineError(
                f"max_attempts must be 0 (never relaunch) or more. max_attempts={self.max_attempts}"
            )
        if self.same_error_max < 1:
            raise InvalidPipelineError(
                "same_error_max must be 1 (the first failure is a crash loop) or more; above max_attempts it never "
                f"counts. same_error_max={self.same_error_max}"
            )
        if self.backoff_max_ms < self.backoff_ms:
            raise InvalidPipelineError(
                f"backoff_max must not be shorter than backoff. backoff={self.backoff}, backoff_max={self.backoff_max}"
            )
        if self.lease_timeout_ms < 1_000:
            raise InvalidPipelineError(
                "lease_timeout must be at least a second: a writer that pauses for less is not dead. "
                f"lease_timeout={self.lease_timeout}"
            )
        if self.lease_timeout_ms > LEASE_TIMEOUT_MS_MAX:
            raise InvalidPipelineError(
                "lease_timeout must be at most a day: for so long a stream whose writer is gone stands still. "
                f"lease_timeout={self.lease_timeout}"
            )

    @property
    def backoff_ms(self) -> int:
        return milliseconds(self.backoff, "backoff")

    @property
    def backoff_max_ms(self) -> int:
        return milliseconds(self.backoff_max, "backoff_max")

    @property
    def lease_timeout_ms(self) -> int:
        return milliseconds(self.lease_timeout, "lease_timeout")

    @property
    def start_timeout_ms(self) -> int:
        """Never shorter than an opening that does not fence may take: it waits for one `lease_timeout`."""
        return max(START_TIMEOUT_MS, 2 * self.lease_timeout_ms)

    def wait_ms(self, attempt: int) -> int:
        """How long relaunch number `attempt` (the first is 1) waits after the failure."""
        return 0 if attempt <= 1 else min(self.backoff_ms * 2 ** min(attempt - 2, 32), self.backoff_max_ms)
