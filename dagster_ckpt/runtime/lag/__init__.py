"""How far a stream is behind its sources, now.

Reading order

    lag          the value, its arithmetic, and a gauge that measures it in the background
    source_lags  the lag of each kind of source: files, offsets, epochs of an upstream
"""
