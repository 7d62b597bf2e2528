"""``torchrun``, also for PyTorch 1.13 on Python 3.11, as Debian 12 has them.

There ``Std.from_str("0")`` finds nothing: Python 3.11 no longer lists the zero member when a flag enumeration is
iterated. Newer PyTorch reads it right, and is left alone.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.elastic.multiprocessing.api import Std
from torch.distributed.run import main


def _with_zero(from_str: Any) -> Any:
    def read(text: str) -> Any:
        found = from_str(text)
        return Std.NONE if found is None else found

    return read


if __name__ == "__main__":
    Std.from_str = staticmethod(_with_zero(Std.from_str))
    main()
