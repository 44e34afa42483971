"""Numbers as people read them."""


def count(number: float) -> str:
    """`1k`, `10M`, `598k`, `1.42M`: three figures."""
    for bound, unit in ((999_500, "M"), (999.5, "k")):
        if number >= bound:
            return f"{number / (1_000_000 if unit == 'M' else 1_000):.3g}{unit}"
    return f"{number:.3g}"


def duration(seconds: float) -> str:
    """`34 ms`, `1.20 s`."""
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.2f} s"


def times(ratio: float) -> str:
    """`4.6 x`, `52 x`."""
    return f"{ratio:.1f} x" if ratio < 9.95 else f"{ratio:.0f} x"


def size(number: float) -> str:
    """Bytes: `71.6 MB`."""
    return f"{number / 1e9:.3g} GB" if number >= 999.5e6 else f"{number / 1e6:.3g} MB"
