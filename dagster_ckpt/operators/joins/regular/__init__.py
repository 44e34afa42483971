"""The regular join: no bound in time, over inputs that append or change.

Reading order

    regular_join   the operator
    regular_side   one input: its columns, what arrived in an epoch, and its rows by key, which may be unique
    arrived_keys   what arrived in an epoch on both sides, key after key
    weighted_rows  rows of both sides before and after an epoch, and the pairs that follow
"""
