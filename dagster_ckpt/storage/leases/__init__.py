"""Leases: the heartbeat of a writer. Advice only; the term is the guard.

Reading order

    heartbeat         leases read, and renewed by a separate thread
    liveness          whether the work behind a lease still makes progress
    process_identity  which process this is, and whether another one has ended
"""
