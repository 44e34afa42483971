"""State and timers as the methods of a process function see them.

Reading order

    keyed_state  all state, by name
    value_state  one row for each key
    list_state   many rows for each key
    timers       when to be called again
    call_keys    the keys of the call
    user_tables  tables from the user's code, checked
"""
