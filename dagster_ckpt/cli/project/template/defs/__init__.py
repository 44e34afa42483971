"""Definitions made by `dg scaffold defs`."""
