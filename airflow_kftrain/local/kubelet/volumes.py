"""A pod's volumes as directories, and the paths under which its processes see them.

There are no mounts without namespaces: a ``mountPath`` is replaced by the volume's real path wherever it stands in the
command line, the environment and the working directory.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from airflow_kftrain.local.kubelet.environment import Object, Sources, field_value, resource_value
from airflow_kftrain.local.kubelet.refusal import ContainerRefused, MountFailed
from airflow_kftrain.local.kubelet.rewrite import LOOPBACK

_SECRET_MODE = 0o600


@dataclass(frozen=True)
class Mounts:
    """Where a container's mount paths really are, by mount path."""

    paths: Mapping[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """``text`` with every mount path, and every path below one, made real; the longest mount path counts."""
        if not self.paths:
            return text
        longest_first = sorted(self.paths, key=len, reverse=True)
        alternatives = "|".join(re.escape(path) for path in longest_first)
        pattern = rf"(?<![\w./\-])(?:{alternatives})(?![\w.\-])"
        return re.sub(pattern, lambda match: self.paths[match[0]], text)


def prepare_volumes(pod: Object, directory: Path, claims: Path, sources: Sources) -> dict[str, Path]:
    """Make the pod's volumes, and return where each one is, by name. Existing content of an emptyDir is kept.

    :param directory: the pod's own directory for volumes
    :param claims: where PersistentVolumeClaims of the pod's namespace are kept
    :raises MountFailed: a volume's source is missing or of a type that cannot be had here
    """
    return {
        volume["name"]: _prepare(volume, pod, directory / volume["name"], claims, sources)
        for volume in pod["spec"].get("volumes") or ()
    }


def container_mounts(container: Object, volumes: Mapping[str, Path]) -> Mounts:
    """The container's mounts; a ``subPath`` is made when it is missing.

    :raises ContainerRefused: a mount names no volume of the pod, or cannot be replaced in text
    """
    paths: dict[str, str] = {}
    for mount in container.get("volumeMounts") or ():
        name, where = mount["name"], "/" + mount["mountPath"].strip("/")
        if name not in volumes:
            raise ContainerRefused("CreateContainerConfigError", f"volumeMount {name!r} names no volume")
        if where == "/":
            raise ContainerRefused("CreateContainerError", "a volume cannot be mounted at / here")
        paths[where] = str(_sub_path(volumes[name], mount.get("subPath") or ""))
    return Mounts(paths)


def _sub_path(volume: Path, sub_path: str) -> Path:
    if not sub_path:
        return volume
    path = (volume / sub_path).resolve()
    if not path.is_relative_to(volume.resolve()):
        raise ContainerRefused("CreateContainerConfigError", f"subPath {sub_path!r} leads out of its volume")
    if not path.exists():
        path.mkdir(parents=True)
    return path


def _prepare(volume: Object, pod: Object, path: Path, claims: Path, sources: Sources) -> Path:
    kind = next((key for key in volume if key != "name"), "emptyDir")
    source = volume.get(kind) or {}
    if kind == "hostPath":
        return _host_path(volume["name"], source)
    if kind == "persistentVolumeClaim":
        path = claims / source["claimName"]
        path.mkdir(parents=True, exist_ok=True)
        return path
    if kind == "emptyDir":
        path.mkdir(parents=True, exist_ok=True)
        return path
    maker = _PROJECTIONS.get(kind)
    if maker is None:
        raise MountFailed(
            f"volume {volume['name']!r}: {kind} volumes cannot be had on a local cluster; use emptyDir, configMap, "
            "secret, hostPath, persistentVolumeClaim, projected or downwardAPI"
        )
    return _write(path, dict(maker(source, pod, sources)), volume["name"], source.get("defaultMode"))


def _host_path(name: str, source: Object) -> Path:
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch(exist_ok=True)
    checks: Mapping[str, Callable[[], bool]] = {
        "Directory": path.is_dir,
        "File": path.is_file,
        "": path.exists,
    }
    if not checks.get(kind, path.exists)():
        raise MountFailed(
            f"volume {name!r}: hostPath {path} is not there, or is no {kind or 'file or directory'}"
        )
    return path


Files = Iterator[tuple[str, bytes]]


def _config_map(source: Object, _pod: Object, sources: Sources) -> Files:
    return _keyed("configmap", source.get("name", ""), source, sources)


def _secret(source: Object, _pod: Object, sources: Sources) -> Files:
    return _keyed("secret", source.get("secretName") or source.get("name", ""), source, sources)


def _keyed(kind: str, name: str, source: Object, sources: Sources) -> Files:
    values = sources.values(kind, name)
    if values is None:
        if source.get("optional"):
            return
        raise MountFailed(f'{kind} "{name}" not found')
    if not source.get("items"):
        yield from values.items()
        return
    for item in source["items"]:
        if item["key"] in values:
            yield item["path"], values[item["key"]]
        elif not source.get("optional"):
            raise MountFailed(f'{kind} "{name}" has no key {item["key"]!r}')


def _downward(source: Object, pod: Object, _sources: Sources) -> Files:
    for item in source.get("items") or ():
        if "fieldRef" in item:
            yield item["path"], field_value(pod, item["fieldRef"].get("fieldPath", ""), LOOPBACK).encode()
        else:
            first = pod["spec"]["containers"][0]
            yield item["path"], resource_value(pod, first, item.get("resourceFieldRef") or {}).encode()


def _projected(source: Object, pod: Object, sources: Sources) -> Files:
    for part in source.get("sources") or ():
        for kind, value in part.items():
            # A pod here has no service account: its token, and the cluster's trust bundle, are left out.
            if kind in _PROJECTIONS:
                yield from _PROJECTIONS[kind](value, pod, sources)


_PROJECTIONS: dict[str, Callable[[Object, Object, Sources], Files]] = {
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "projected": _projected,
}


def _write(directory: Path, files: Mapping[str, bytes], volume: str, mode: int | None) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, mode=0o700)
    for name, content in files.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise MountFailed(f"volume {volume!r}: the path {name!r} leads out of it")
        path = directory / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod((mode if mode is not None else 0o644) | _SECRET_MODE)
    return directory


def mounted_file(path: str, mounts: Mounts) -> Path | None:
    """The real path of a file inside a mount; None when no mount holds it."""
    real = mounts.text(path)
    return Path(real) if real != path else None


def as_strings(values: Mapping[str, str], mounts: Mounts) -> dict[str, str]:
    """An environment with its mount paths made real."""
    return {name: mounts.text(value) for name, value in values.items()}
