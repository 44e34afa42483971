"""The window join and the instant join.

Reading order

    window_join   the operator
    window_state  a row for each open window it is in
"""
