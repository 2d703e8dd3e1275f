"""The `kvstrata` command."""

import signal
import sys

from ._kvstrata import run_command


def main() -> None:
    """Runs the command with the arguments of this process, and ends it with its exit code."""
    # The command has handlers of its own where it needs them. Python's would only note the signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.flush()
    sys.exit(run_command(["kvstrata", *sys.argv[1:]]))
