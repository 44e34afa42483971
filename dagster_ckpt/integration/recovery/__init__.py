"""Which Dagster run must be started again.

Reading order. A killed run is judged in `decision`.

    sensor            checks every stream every few seconds
    decision          the pure decision
    stream_view       what the decision sees of a stream
    stream_status     the status of a stream in the store
    sensor_memory     since when each stream has been unchanged
    dagster_runs      the newest Dagster run of a stream
    start_heartbeat   the heartbeat of a run that has not opened its stream yet
    relaunch          declares a dead run failed, and requests the next
    crash_loop        whether a stream fails again and again with the same error
    crash_loop_check  the asset check `no_crash_loop`
    sensor_check      the asset check `has_recovery_sensor`
    live_check        the asset check `is_live`
    manual_changes    rollbacks, pins and other changes by hand, as events
"""
