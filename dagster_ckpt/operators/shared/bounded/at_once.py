"""How many questions to ask at once, so that the answer fits into memory."""


class AtOnce:
    """So many questions that the answer has at most about `bytes_max` bytes.

    How large an answer is nobody knows before it is there: each says how many questions would have filled half of what
    may be held, and so many are asked the next time. One question is asked whatever its answer weighs. The answer to
    one is taken for no larger than `room_bytes` until the first answers are there. At most `growth_max` times as many
    are asked the next time: few answers may say little about the others.
    """

    def __init__(self, bytes_max: int, room_bytes: int, growth_max: int) -> None:
        self._bytes_max = bytes_max
        self._growth_max = growth_max
        self.count = max(1, bytes_max // room_bytes)

    def learn(self, count: int, bytes_: int) -> bool:
        """What an answer to so many questions says of the next ones; and whether it can be used itself."""
        fill_half = count * self._bytes_max // max(1, 2 * bytes_)
        if fill_half >= count:
            self.count = max(self.count, min(fill_half, self._growth_max * count))
        else:
            self.count = max(1, fill_half)
        return bytes_ <= self._bytes_max or count == 1
