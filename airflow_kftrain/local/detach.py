"""Starts the daemon as nobody's child: ``python -m airflow_kftrain.local.detach HOME [READY_FD]``.

So the caller has no process to reap, and its terminal's signals do not reach the daemon. It forks before anything else
is imported: libraries that start threads or hold system handles do not survive a fork on every system.
"""

import os
import sys


def main() -> int:
    """The daemon's life, in a process of its own; its exit code."""
    if os.fork():
        os._exit(0)
    os.setsid()
    from airflow_kftrain.local.daemon import main as daemon

    return daemon(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
