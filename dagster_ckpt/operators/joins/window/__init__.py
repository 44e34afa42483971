"""The window join and the instant join.

Reading order

    window_join   the operator
    window_state  the rows of one input, once for each open window
"""
