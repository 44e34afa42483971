"""Event times near both ends of int64, and which of them no step counts with: in Python, whose integers never wrap."""

from hypothesis import strategies as st

LEAST, GREATEST = -(2**63), 2**63 - 1


def is_out_of_range(time_us: int) -> bool:
    """Whether a row with this event time is late whatever the watermark is."""
    return abs(time_us) > 2**61


def _near(us: int) -> st.SearchStrategy[int]:
    return st.integers(max(us - 12, LEAST), min(us + 12, GREATEST))


ENDS_OF_INT64 = st.sampled_from([LEAST, -(2**62), -(2**61), 0, 2**61, 2**62, GREATEST]).flatmap(_near)
"""Times around the ends of 64 bits, of what the watermark reaches, and of the range that steps count with."""
