"""Builds the control plane's programs: ``python -m tests.controlplane.build [PROGRAM ...]``.

Each folder below ``go/`` is one Go module (their dependency graphs conflict) whose ``tool`` lines name the packages
to build. A module's programs, and the manifests that it ships, go to a folder outside the tree whose name holds a
hash of all that the result depends on; what is there is never built again, so an interrupted build goes on where it
stopped. About ten minutes on two cores the first time.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

GO_MODULES = Path(__file__).parent / "go"
VERSION_PACKAGE = "k8s.io/component-base/version"


class BuildError(Exception):
    """The control plane cannot be built here; the text says why and what to do."""


@dataclass(frozen=True)
class GoModule:
    """One folder below ``go/``.

    ``programs`` maps the name of a built file to its package, ``files`` the name of a copied folder or file to the
    module it is in and its path there. ``version`` is the Kubernetes version linked in: clients refuse a server
    without one.
    """

    name: str
    programs: dict[str, str]
    files: dict[str, tuple[str, str]] = field(default_factory=dict)
    version: str | None = None

    @property
    def source(self) -> Path:
        """The folder of its ``go.mod``."""
        return GO_MODULES / self.name

    @property
    def ldflags(self) -> str:
        """Flags for the linker: no debug tables (half the size), and the version where one is set."""
        flags = ["-s", "-w"]
        if self.version is not None:
            major, minor, _ = self.version.split(".")
            parts = {"gitVersion": f"v{self.version}", "gitMajor": major, "gitMinor": minor}
            flags += [f"-X {VERSION_PACKAGE}.{key}={value}" for key, value in parts.items()]
        return " ".join(flags)

    @property
    def cache(self) -> Path:
        """The folder that holds its results for just these sources, flags and platform."""
        content = hashlib.sha256(self.ldflags.encode())
        for name in ("go.mod", "go.sum"):
            content.update((self.source / name).read_bytes())
        content.update(repr((sys.platform, os.uname().machine, sorted(self.files.items()))).encode())
        return cache_root() / f"{self.name}-{content.hexdigest()[:12]}"

    def program(self, name: str) -> Path:
        """Where a program of this module is once built."""
        return self.cache / "bin" / name

    def file(self, name: str) -> Path:
        """Where a manifest folder of this module is once copied."""
        return self.cache / "files" / name


TRAINING_OPERATOR = "github.com/kubeflow/training-operator"
SCHEDULER_PLUGINS = "sigs.k8s.io/scheduler-plugins"

MODULES = (
    GoModule(
        "kubernetes",
        {
            "etcd": "go.etcd.io/etcd/server/v3",
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        },
        version="1.37.2",
    ),
    GoModule(
        "training-operator",
        {"training-operator": f"{TRAINING_OPERATOR}/cmd/training-operator.v1"},
        files={
            "crds": (TRAINING_OPERATOR, "manifests/base/crds"),
            "webhook": (TRAINING_OPERATOR, "manifests/base/webhook"),
        },
    ),
    GoModule(
        "scheduler-plugins",
        {"gang-scheduler": f"{SCHEDULER_PLUGINS}/cmd/scheduler"},
        files={"coscheduling": (SCHEDULER_PLUGINS, "manifests/coscheduling")},
        version="1.34.4",
    ),
    GoModule("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}),
)


def cache_root() -> Path:
    """The folder of all results: below ``XDG_CACHE_HOME``, by default ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "airflow-kftrain" / "controlplane"


def module_of(program: str) -> GoModule:
    """The module that builds ``program``."""
    for module in MODULES:
        if program in module.programs:
            return module
    known = ", ".join(name for module in MODULES for name in module.programs)
    raise BuildError(f"no program {program!r} is built here; known are: {known}")


def program_path(program: str) -> Path:
    """Where ``program`` is once built."""
    return module_of(program).program(program)


def missing_programs() -> list[str]:
    """The programs that are not built yet for the present sources."""
    return [name for module in MODULES for name in module.programs if not module.program(name).exists()]


def build(programs: Sequence[str] = ()) -> None:
    """Build ``programs`` (default: all), leaving out what is there.

    Raises BuildError when Go is missing or too old, or a build fails.
    """
    wanted = list(programs) or [name for module in MODULES for name in module.programs]
    todo = [name for name in wanted if not program_path(name).exists()]
    for module in MODULES:
        names = [name for name in wanted if module_of(name) is module]
        if names and (set(names) & set(todo) or _missing_files(module)):
            _check_go(module)
            with _locked(module):
                _copy_files(module)
                for name in names:
                    _build_program(module, name, f"{wanted.index(name) + 1}/{len(wanted)}")
    print(f"all {len(wanted)} programs are built, below {cache_root()}")


def _build_program(module: GoModule, name: str, position: str) -> None:
    target = module.program(name)
    if target.exists():
        print(f"[{position}] {name}: already built")
        return
    print(f"[{position}] {name}: building {module.programs[name]} ...", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    began = time.monotonic()
    flags = ["-trimpath", "-ldflags", module.ldflags, "-o", str(partial)]
    _go(module, "build", *flags, module.programs[name])
    # A file under its real name is whole, also after a kill: that is what a later run relies on.
    partial.rename(target)
    print(f"[{position}] {name}: built in {time.monotonic() - began:.0f} s", flush=True)


def _missing_files(module: GoModule) -> bool:
    return any(not module.file(name).exists() for name in module.files)


def _copy_files(module: GoModule) -> None:
    for name, (go_module, path) in module.files.items():
        if module.file(name).exists():
            continue
        _go(module, "mod", "download", go_module)
        folder = _go(module, "list", "-m", "-f", "{{.Dir}}", go_module, capture=True).strip()
        partial = module.file(f"{name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(Path(folder) / path, partial, copy_function=shutil.copyfile)
        partial.chmod(0o755)
        partial.rename(module.file(name))


def _go(module: GoModule, *arguments: str, capture: bool = False) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            ["go", *arguments],
            cwd=module.source,
            env=environment,
            check=True,
            text=True,
            stdout=subprocess.PIPE if capture else None,
        )
    except subprocess.CalledProcessError as error:
        raise BuildError(
            f"`go {arguments[0]}` failed in {module.source} with exit code {error.returncode}"
        ) from error
    return done.stdout or ""


def _check_go(module: GoModule) -> None:
    if shutil.which("go") is None:
        raise BuildError(
            "go is not on PATH: install Go (https://go.dev/doc/install), the control plane is built with it"
        )
    wanted = re.search(r"^go (\S+)$", (module.source / "go.mod").read_text(), re.MULTILINE)
    found = re.search(r"go(\d+(?:\.\d+)*)", subprocess.check_output(["go", "env", "GOVERSION"], text=True))
    if wanted and found and _numbers(found[1]) < _numbers(wanted[1]):
        raise BuildError(f"Go {found[1]} is too old for {module.name}: {wanted[1]} or newer is needed")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


@contextlib.contextmanager
def _locked(module: GoModule) -> Iterator[None]:
    """Hold the module's folder: two builds at once would each do all of the work."""
    module.cache.mkdir(parents=True, exist_ok=True)
    with (module.cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.controlplane.build", description=__doc__.split("\n")[0]
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help="default: all")
    parser.add_argument("--where", action="store_true", help="print where the programs are, build nothing")
    arguments = parser.parse_args()
    try:
        if arguments.where:
            for name in arguments.programs or [name for module in MODULES for name in module.programs]:
                print(f"{program_path(name)}{'' if program_path(name).exists() else '  (not built)'}")
        else:
            build(arguments.programs)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
