"""The directory of a local cluster: what is where, and what was asked for."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from airflow_kftrain.exceptions import InvalidInput, LocalClusterError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.IGNORECASE)


def default_home(name: str = "default") -> Path:
    """``$KFTRAIN_HOME`` if set, else ``~/.kftrain/<name>``.

    :raises InvalidInput: the name cannot be a directory's
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidInput("name", name, "use letters, digits, '-', '_' and '.', 63 at most")
    set_home = os.environ.get("KFTRAIN_HOME")
    return Path(set_home).expanduser() if set_home else Path.home() / ".kftrain" / name


@dataclass(frozen=True)
class Config:
    """What a cluster was brought up with.

    :param gpus: per node
    """

    nodes: int = 1
    gpus: int = 0

    def __str__(self) -> str:
        return f"{self.nodes} node{'s' * (self.nodes != 1)} of {self.gpus} GPU{'s' * (self.gpus != 1)}"


@dataclass(frozen=True)
class Home:
    """Paths and small files of one cluster, all readable by their owner alone."""

    path: Path

    @property
    def api(self) -> Path:
        return self.path / "api"

    @property
    def machine(self) -> Path:
        return self.path / "machine"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def images(self) -> Path:
        return self.path / "images.toml"

    @property
    def log(self) -> Path:
        return self.path / "daemon.log"

    @property
    def lock(self) -> Path:
        """Locked by the daemon as long as it lives: whoever can lock it knows that there is none."""
        return self.path / "daemon.lock"

    @property
    def state_paths(self) -> list[Path]:
        """What ``reset`` removes; the table of images is the user's and stays."""
        names = ("api", "machine", "kubeconfig", "config.json", "cluster-id", "daemon.lock")
        logs = ("daemon.log", "daemon.log.1")
        return [self.path / name for name in (*names, *logs)]

    def make(self) -> None:
        """Make the directory.

        :raises LocalClusterError: it cannot be made or written
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.machine.mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unusable(error) from error

    def cluster_id(self) -> str:
        """The cluster's mark; a copy of the directory elsewhere is another cluster."""
        file = self.path / "cluster-id"
        if not file.exists():
            file.write_text(uuid.uuid4().hex)
        place = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:12]
        return f"{file.read_text().strip()}-{place}"

    def config(self) -> Config | None:
        """What the cluster was brought up with last; None before the first time."""
        try:
            return Config(**json.loads((self.path / "config.json").read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise LocalClusterError(
                f"{self.path / 'config.json'} cannot be read ({error}): remove it, or run kftrain local reset"
            ) from error

    def write_config(self, config: Config) -> None:
        (self.path / "config.json").write_text(json.dumps(asdict(config)))

    def make_tmp(self) -> Path:
        """A directory with a short path for pods' temporary files; the same until :meth:`remove_tmp`."""
        link = self.machine / "tmp"
        if not link.is_dir():
            link.unlink(missing_ok=True)
            short = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108 - made there under a random name
            link.symlink_to(tempfile.mkdtemp(prefix="kft-", dir=short))
        return link.readlink()

    def remove_tmp(self) -> None:
        """Remove the directory for temporary files, and all in it."""
        link = self.machine / "tmp"
        if link.is_symlink():
            shutil.rmtree(link.readlink(), ignore_errors=True)
            link.unlink()

    def daemon_pid(self) -> int | None:
        """The process id of the daemon that lives; None when there is none.

        :raises LocalClusterError: the directory cannot be used
        """
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            text = os.read(descriptor, 32).decode().strip()
            return int(text) if text.isdigit() else None
        finally:
            os.close(descriptor)
        return None

    def hold(self) -> int:
        """Lock for as long as the process lives, and write its id; the descriptor must be kept.

        :raises LocalClusterError: a daemon lives already
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise LocalClusterError(f"a local cluster runs in {self.path} already") from error
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """One ``up``, ``down`` or ``reset`` at a time; another one waits.

        :raises LocalClusterError: the directory cannot be used
        """
        try:
            descriptor = os.open(self.path / "command.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _unusable(self, error: OSError) -> LocalClusterError:
        return LocalClusterError(
            f"{self.path} cannot be used ({error.strerror}): give another directory with --home or KFTRAIN_HOME"
        )
