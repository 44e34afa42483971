"""Aggregates over windows and sessions of event time.

Reading order

    window_aggregate   tumbling and hopping windows, and when they are closed
    session_aggregate  sessions
    window_of_table    tumbling and hopping windows of rows that come and go, however old they are
    windowed_state     the state of both, and how it becomes the stream's table
    session_state      the state tables of sessions, and when sessions are closed
"""
