"""Epochs as inputs of ordinary assets.

Reading order

    io_manager       any asset loads a stream's table
    aligned_inputs   inputs that come from one cut
    loaded_epochs    which epochs a step has loaded
    late_rows_asset  late rows as an asset
"""
