"""Asset checks of the user's: against a committed epoch, while the stream runs.

Reading order

    epoch_checks  which checks run, and when
    check_jobs    a job for each stream's checks, with the sensor or schedule that launches it; results name epochs
"""
