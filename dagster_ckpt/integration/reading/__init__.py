"""Epochs as inputs of ordinary assets.

Reading order

    io_manager       any asset loads a stream's table
    loaded_epochs    which epochs a step has loaded, and inputs that come from one cut
    late_rows_asset  late rows as an asset
"""
