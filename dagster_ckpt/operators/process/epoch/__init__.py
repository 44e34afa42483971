"""One epoch of a process function.

Reading order

    process_epoch   what is called when, and with what
    process_expiry  state that is forgotten
    pending_output  what was emitted while rows were taken in
"""
