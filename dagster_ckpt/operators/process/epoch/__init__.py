"""One epoch of a process function.

Reading order

    process_epoch   when the methods are called, and with what
    process_expiry  state that expires
"""
