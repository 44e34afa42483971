"""What is done to a whole stream.

Reading order

    collector       retires old manifests, then removes files that nothing needs
    rebuilt_folders what is left of streams that were rebuilt alongside
    fork            a new stream that begins with an epoch of another and copies nothing
    manual_opening  opens a stream outside of any Dagster run, and rolls it back
"""
