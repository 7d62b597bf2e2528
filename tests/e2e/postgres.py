"""A PostgreSQL server of its own for a test: its own data, a free port, loopback only."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.requires import unavailable

WHY = "the end-to-end test runs Airflow on PostgreSQL"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def postgres(database: str = "airflow") -> Iterator[str]:
    """Run a server; yields an SQLAlchemy URL of an empty database. Skips where PostgreSQL is not installed."""
    binaries = _binaries()
    if binaries is None:
        unavailable(f"PostgreSQL's server programs (initdb, pg_ctl) are not installed: {WHY}")
    assert binaries is not None
    root = Path(tempfile.mkdtemp(prefix="kftrain-pg-"))
    run = _Runner(binaries, root)
    port = free_port()
    try:
        run("initdb", "-D", f"{root}/data", "-U", "airflow", "--auth=trust", "-E", "UTF8", "--no-sync")
        settings = f"-p {port} -k {root} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=200"
        run("pg_ctl", "-D", f"{root}/data", "-l", f"{root}/log", "-w", "-o", settings, "start")
        run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "airflow", database)
        yield f"postgresql+psycopg2://airflow@127.0.0.1:{port}/{database}"
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            run("pg_ctl", "-D", f"{root}/data", "-m", "immediate", "-w", "stop")
        shutil.rmtree(root, ignore_errors=True)


def _binaries() -> Path | None:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return candidates[-1].parent if candidates else None


class _Runner:
    """Runs PostgreSQL's programs; as root through its own user, because the server refuses root."""

    def __init__(self, binaries: Path, root: Path) -> None:
        self._binaries = binaries
        self._root = root
        self._user: pwd.struct_passwd | None = None
        if os.geteuid() == 0:
            self._user = pwd.getpwnam("postgres")
            os.chown(root, self._user.pw_uid, self._user.pw_gid)

    def __call__(self, program: str, *arguments: str) -> None:
        uid, gid = (self._user.pw_uid, self._user.pw_gid) if self._user else (None, None)
        with (self._root / "setup.log").open("ab") as output:
            done = subprocess.run(
                [str(self._binaries / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._root,
                timeout=60,
                check=False,
                user=uid,
                group=gid,
                extra_groups=[] if self._user else None,
            )
        if done.returncode:
            text = (self._root / "setup.log").read_text(errors="replace")[-2000:]
            raise subprocess.CalledProcessError(done.returncode, program, text)
