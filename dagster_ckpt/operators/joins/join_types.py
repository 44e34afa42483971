"""The types of joins, and what each lets come out."""

from enum import StrEnum

LEFT, RIGHT = 0, 1
"""The numbers of a join's two inputs."""


class JoinType(StrEnum):
    """Which rows a join gives."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def gives_pairs(self) -> bool:
        """Whether rows that match come out together; otherwise rows of the left come out, each once."""
        return self not in (JoinType.SEMI, JoinType.ANTI)

    def keeps_unmatched(self, number: int) -> bool:
        """Whether rows of this input come out that match nothing."""
        if number == LEFT:
            return self in (JoinType.LEFT, JoinType.FULL, JoinType.ANTI)
        return self in (JoinType.RIGHT, JoinType.FULL)

    def ends_with_a_match(self, number: int) -> bool:
        """Whether a row of this input is done with once it has matched: no later match changes what comes out."""
        return number == LEFT and not self.gives_pairs
