"""The command `dagster-ckpt`: inspects and operates a store, for people and (`--json`) for programs.

Reading order

    command          the command and its options
    queries          commands that only read
    actions          commands that change a store
    request          what all commands share: options and output
    project/         `init`: a project that runs as it is

Command lines
    argument_values  values of arguments
    key_arguments    keys: `carrier=UA`
    far_times        times that Python lacks: before year 1 or after 9999

Output
    output/          results as text and JSON
    confirmation     questions before history is changed
    progress         progress of long commands
    watch_screen     `show --watch`
    json_text        values that JSON lacks
    __main__         `python -m dagster_ckpt.cli`
"""

from dagster_ckpt.cli.command import main

__all__ = ["main"]
