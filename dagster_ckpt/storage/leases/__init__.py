"""Leases: the heartbeat of a writer. Advice only; the term is the guard.

Reading order

    heartbeat         leases read, and renewed by a separate thread while the work gives signs of life
    process_identity  which process this is, and whether another one has ended
"""
