"""What stands for an image here: an interpreter, a working directory, or nothing that can be pulled."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from airflow_kftrain.exceptions import InvalidInput

_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?")
_KEYS: Mapping[str, type] = {"pattern": str, "python": str, "workdir": str, "env": dict, "unpullable": bool}


@dataclass(frozen=True)
class Image:
    """How containers of the images that match ``pattern`` run.

    :param pattern: shell pattern (``*``, ``?``, ``[…]``) over the whole image name with its tag
    :param python: the interpreter that ``python`` means there
    :param workdir: working directory where the container names none; else an empty one of the pod's own
    :param env: variables that the image brings; the pod's win over them
    :param unpullable: the image does not exist: containers wait in ``ErrImagePull`` and ``ImagePullBackOff``
    """

    pattern: str = "*"
    python: str = sys.executable
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    unpullable: bool = False

    def argv(self, argv: Sequence[str]) -> list[str]:
        """``argv`` with a leading ``python`` replaced by the interpreter.

        A path to a Python that exists on this machine is the user's own choice and kept; one that does not exist
        here is the image's.
        """
        program = Path(argv[0])
        is_python = _PYTHON.fullmatch(program.name) is not None
        if not is_python or (program.is_absolute() and program.exists()):
            return list(argv)
        return [self.python, *argv[1:]]


@dataclass(frozen=True)
class Images:
    """The table of images; the first pattern that matches counts."""

    entries: tuple[Image, ...] = ()

    def find(self, name: str) -> Image:
        """The entry for an image; the default (this interpreter) where none matches."""
        return next((entry for entry in self.entries if fnmatchcase(name, entry.pattern)), Image())

    @classmethod
    def load(cls, path: Path) -> Images:
        """Read a TOML file of ``[[image]]`` tables; a missing file is an empty table.

        :raises InvalidInput: it is not TOML, or a table has a field that does not exist or is of another type
        """
        try:
            content = tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return cls()
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidInput("images", str(path), f"it cannot be read as TOML ({error})") from error
        tables = content.pop("image", [])
        if content or not isinstance(tables, list):
            raise InvalidInput("images", sorted(content), f"{path} may hold [[image]] tables only")
        return cls(tuple(_entry(table, f"image[{n}]") for n, table in enumerate(tables)))


def _entry(table: dict[str, Any], where: str) -> Image:
    for key, value in table.items():
        if key not in _KEYS:
            raise InvalidInput(f"{where}.{key}", value, f"give one of {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]):
            raise InvalidInput(f"{where}.{key}", value, f"it must be of type {_KEYS[key].__name__}")
    if not table.get("pattern"):
        raise InvalidInput(f"{where}.pattern", table.get("pattern"), "give a pattern such as 'acme/train:*'")
    for key in ("python", "workdir"):
        if key in table:
            table[key] = str(Path(table[key]).expanduser())
            if not Path(table[key]).exists():
                raise InvalidInput(f"{where}.{key}", table[key], "there is no such path on this machine")
    table["env"] = {str(k): str(v) for k, v in table.get("env", {}).items()}
    return Image(**table)
