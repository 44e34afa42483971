"""The command `dagster-ckpt`: what a store holds, for people and (`--json`) for programs.

Reading order

    command          the command and its options
    queries          commands that only read
    actions          commands that change a store
    request          what all commands share: options, and the form of the answer

Command lines
    argument_values  values as people write them
    key_arguments    keys as people write them: `carrier=UA`
    far_times        times that Python lacks: before its year 1 or after 9999

Beside the answer
    output/          answers as text and JSON
    confirmation     what is said before history is changed
    progress         how far a long command is
    watch_screen     `show --watch`
    json_text        values that JSON lacks
    __main__         `python -m dagster_ckpt.cli`
"""

from dagster_ckpt.cli.command import main

__all__ = ["main"]
