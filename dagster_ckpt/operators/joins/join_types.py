"""The types of joins, and what each emits."""

from enum import StrEnum

LEFT, RIGHT = 0, 1
"""The numbers of a join's two inputs."""


class JoinType(StrEnum):
    """Which rows a join emits."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def gives_pairs(self) -> bool:
        """Whether matching rows are emitted as pairs; otherwise rows of the left are emitted, each once."""
        return self not in (JoinType.SEMI, JoinType.ANTI)

    def keeps_unmatched(self, number: int) -> bool:
        """Whether unmatched rows of this input are emitted."""
        if number == LEFT:
            return self in (JoinType.LEFT, JoinType.FULL, JoinType.ANTI)
        return self in (JoinType.RIGHT, JoinType.FULL)

    def ends_with_a_match(self, number: int) -> bool:
        """Whether a row of this input is dropped at its first match: later matches do not change the output."""
        return number == LEFT and not self.gives_pairs
