"""The bytes of a run's file.

Reading order

    run_file     a run's file, encoded and decoded
    run_tail     the end of the file: descriptor and checksums
    blocks       blocks with a checksum each, checked when their bytes are first used, and which rows need which
"""
