"""What several rooms of operators need. Knows none of them.

Reading order

    net_changes       the rows of change logs: the rows before against the rows now
    retraction        groups of rows that are retracted
    window_kinds      tumbling, hopping and session windows, and which of them a row is in
    event_time_range  the range of valid event times, and the rows outside it
    late_rows         rows that came too late
    time_to_live      keys that expire
    state_columns     columns that state tables have besides the user's
    subkeys           hashes of rows below a key
    row_order         a total order of whole rows
    expiry_checks     steps whose keys expire

Rooms
    zsets/            rows with weights: what comes and what goes
    arrays/           columns as numbers, and back
    checks/           what a pipeline may be: each error with its reason
    ranked/           the rows of each key in an order
    bounded/          what may be larger than memory, a part at a time
"""
