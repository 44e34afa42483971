"""Aggregates over windows and sessions of event time.

Reading order

    window_aggregate   tumbling and hopping windows
    session_aggregate  sessions
    windowed_state     what both keep, and how it becomes the stream's table (windows are closed here)
    sessions           which rows are one session
    session_state      where sessions are kept until they end
"""
