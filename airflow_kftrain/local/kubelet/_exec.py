"""Becomes a container's process: ``python -I -S _exec.py PARENT_PID PROGRAM [ARGUMENT …]``.

A step of its own because what it does must happen in the child, where the parent's threads make ``preexec_fn`` unsafe:
ask the kernel to end this process with its parent (Linux), and undo the signal settings that Python made.
"""

import os
import signal
import sys


def _die_with_parent(parent: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    set_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(128 + signal.SIGKILL)


def _run(argv: list[str]) -> int:
    for number in (signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except FileNotFoundError:
        sys.stderr.write(f'exec: "{argv[0]}": no such file, or not on PATH\n')
        return 127
    except OSError as error:
        sys.stderr.write(f'exec: "{argv[0]}": {error.strerror}\n')
        return 126


if __name__ == "__main__":
    _die_with_parent(int(sys.argv[1]))
    sys.exit(_run(sys.argv[2:]))
