"""Runs a control plane by hand: ``python -m tests.controlplane [FOLDER]``; Ctrl-C ends it."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from tests.controlplane.build import BuildError, build
from tests.controlplane.parts import PartFailed
from tests.controlplane.rig import OperatorSpec, Rig


def main() -> int:
    """Build what is missing, start, print the kubeconfig's path, wait for a signal, stop."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="kftrain-rig-"))
    rig = Rig(folder.resolve(), operators=(OperatorSpec("default"),))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        build()
        rig.start()
        print(
            f"ready; the training operator sees to namespace default:\n  export KUBECONFIG={rig.kubeconfig}",
            flush=True,
        )
        signal.pause()
    except KeyboardInterrupt:
        return 0
    except (BuildError, PartFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        rig.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
