"""`python -m dagster_ckpt.cli`, where the script is not on the PATH."""

from dagster_ckpt.cli import main

main(prog_name="dagster-ckpt")
