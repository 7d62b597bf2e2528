"""From what an operator was given to what it submits and how it waits; pure but for reading a manifest's file."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_kftrain.exceptions import InvalidInput
from airflow_kftrain.jobs.durations import parse_duration
from airflow_kftrain.jobs.frameworks import Framework
from airflow_kftrain.jobs.identity import check_dns_label, check_prefix
from airflow_kftrain.jobs.limits import LimitSeconds
from airflow_kftrain.jobs.manifest import ManifestWarning, from_manifest
from airflow_kftrain.jobs.spec import TrainingJobSpec
from airflow_kftrain.operators.arguments import Arguments, as_json, build
from airflow_kftrain.settings import Settings, check_mode

TYPED = ("image", "command", "args", "env", "workers", "gpus", "cpu", "memory", "replicas", "run_policy")
"""Arguments that say what a manifest would say."""

ON_FINISH = ("delete_succeeded", "delete", "keep")
_FILES = (".yaml", ".yml", ".json")
_WORDS_FOR_LOGS = ("first", "all", "none")
_LIMITS = ("queue", "start", "run", "after")
AFTER_LIMIT = 600.0
"""Seconds that replicas in ``wait_for`` may go on after the job has succeeded."""


@dataclass(frozen=True)
class JobPlan:
    """What is submitted, and how it is waited for.

    :param spec: the job, without the name and labels that are ours; None when it cannot be known yet
    :param logs: replicas or replica types whose lines are shown, or one of ``first``, ``all``, ``none``
    :param wait_for: replicas or replica types that are waited for beyond the job's success, or ``all``
    """

    spec: TrainingJobSpec | None
    limits: LimitSeconds
    logs: tuple[str, ...]
    wait_for: tuple[str, ...] = ()


def make_plan(
    kind: Framework | None,
    given: Mapping[str, Any],
    *,
    typed: Callable[[Framework, Mapping[str, Any]], Arguments],
    extra_typed: Collection[str] = (),
    mode: str | None,
    settings: Settings,
    deletes: bool = True,
    manifest_unknown: bool = False,
    size_unknown: bool = False,
) -> JobPlan:
    """Check everything and put it together.

    :param kind: the operator's kind; None for the general operator, which needs a manifest
    :param given: argument name to rendered value
    :param typed: makes typed arguments into :class:`~airflow_kftrain.operators.arguments.Arguments`
    :param extra_typed: arguments of this kind alone that say what a manifest would say
    :param deletes: the task deletes the job when it has succeeded
    :param manifest_unknown: there is a manifest, and it cannot be read yet
    :param size_unknown: some number of replicas is not known yet
    :raises InvalidInput: an argument cannot be used
    """
    _check_mode(mode, given, settings)
    limits = _limits(given.get("limits"), settings)
    logs = _names("logs", given.get("logs"), ("first",), "'first', 'all', 'none', ")
    wait_for = _names("wait_for", given.get("wait_for"), (), "'all', ")
    if given.get("namespace") is not None:
        check_dns_label(given["namespace"], field="namespace")
    has_manifest = manifest_unknown or given.get("manifest") is not None
    _check_either(kind, given, (*TYPED, *extra_typed), has_manifest=has_manifest)
    if manifest_unknown:
        return JobPlan(None, limits, logs, wait_for)
    if has_manifest:
        spec = _from_given_manifest(kind, given["manifest"])
    else:
        assert kind is not None
        spec = from_manifest(_unquoted(build(typed(kind, given))))
    _check_starts(spec)
    if not size_unknown:
        _check_names("logs", logs, spec, _WORDS_FOR_LOGS)
        _check_names("wait_for", wait_for, spec, ("all",))
    if deletes and not any(name == "all" or name.startswith("evaluator") for name in wait_for):
        _warn_of_evaluator(spec)
    return JobPlan(_left_alone(spec) if wait_for else spec, limits, logs, wait_for)


def manifest_file(value: object) -> Path | None:
    """The path that a ``manifest`` argument names; None when it is a manifest itself."""
    if isinstance(value, Path):
        return value
    if isinstance(value, str) and "\n" not in value.strip() and value.strip().endswith(_FILES):
        return Path(value.strip())
    return None


def read_manifest(path: Path, folders: Sequence[Path]) -> str:
    """The text of a manifest's file, looked for in ``folders`` when relative.

    :raises InvalidInput: it cannot be read
    """
    tried = [folder / path for folder in folders] or [path]
    found = next((candidate for candidate in tried if candidate.is_file()), None)
    if found is None:
        places = ", ".join(str(candidate) for candidate in tried)
        raise InvalidInput(
            "manifest", str(path), f"there is no such file ({places}); give its path, or the manifest itself"
        )
    try:
        return found.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(
            "manifest", str(found), f"the file cannot be read ({error}); give one of UTF-8 text"
        ) from error


def check_on_finish(value: object) -> str:
    """``value`` if it is an ``on_finish_action``. :raises InvalidInput: it is none"""
    if value not in ON_FINISH:
        raise InvalidInput("on_finish_action", value, f"use one of {', '.join(ON_FINISH)}")
    return str(value)


def check_exit_codes(value: object) -> frozenset[int]:
    """The exit codes of ``skip_on_exit_code``: one, several, or none. :raises InvalidInput: something else"""
    if value is None:
        return frozenset()
    codes = [value] if isinstance(value, int) else list(value) if isinstance(value, Collection) else None
    if codes is None or any(isinstance(c, bool) or not isinstance(c, int) or not 0 < c < 256 for c in codes):
        raise InvalidInput("skip_on_exit_code", value, "give exit codes from 1 to 255")
    return frozenset(codes)


def _check_mode(mode: str | None, given: Mapping[str, Any], settings: Settings) -> None:
    chosen = check_mode("mode", mode) if mode is not None else settings.mode
    if chosen == "cluster":
        raise InvalidInput(
            "mode" if mode is not None else "[kftrain] mode",
            chosen,
            "cluster mode does not exist in this version; use single-job",
        )
    place = given.get("place")
    if place:
        shown = dict(place) if isinstance(place, Mapping) else place
        raise InvalidInput("place", shown, "it needs mode='cluster'; in single-job mode a job starts at once")
    limits = given.get("limits")
    if isinstance(limits, Mapping) and limits.get("queue") is not None:
        raise InvalidInput(
            "limits.queue",
            limits["queue"],
            "it needs mode='cluster'; in single-job mode nothing queues, use start",
        )


def _limits(given: Any, settings: Settings) -> LimitSeconds:
    limits = {} if given is None else given
    if not isinstance(limits, Mapping):
        raise InvalidInput("limits", given, "give Limits(start=..., run=...)")
    for unknown in set(limits).difference(_LIMITS):
        raise InvalidInput(f"limits.{unknown}", limits[unknown], f"there are the limits {', '.join(_LIMITS)}")

    def seconds(name: str, default: float | None) -> float | None:
        value = limits.get(name)
        if value is None:
            return default
        if isinstance(value, str) and value.strip().lower() == "none":
            return None
        return parse_duration(f"limits.{name}", value).total_seconds()

    defaults = {"start": settings.start_limit, "after": AFTER_LIMIT}
    return LimitSeconds(**{name: seconds(name, defaults.get(name)) for name in _LIMITS})


def _names(field: str, given: Any, default: tuple[str, ...], words: str) -> tuple[str, ...]:
    """Names of replicas and replica types, or single words, in lower case."""
    if given is None:
        return default
    names = (given,) if isinstance(given, str) else given
    if (
        isinstance(names, Mapping)
        or not isinstance(names, Collection)
        or not all(isinstance(n, str) for n in names)
    ):
        raise InvalidInput(field, given, f"give {words}a replica such as 'worker-0', or a list of replicas")
    return tuple(name.strip().lower() for name in names) or (() if not default else ("none",))


def _check_names(field: str, names: tuple[str, ...], spec: TrainingJobSpec, words: Sequence[str]) -> None:
    types = {t.lower() for t in spec.counts}
    for name in names:
        if name not in words and name not in types and name not in spec.replica_names:
            raise InvalidInput(
                field,
                name,
                f"the job has no such replica; it has {', '.join(spec.replica_names[:6])}, "
                f"or use {', '.join(words)}",
            )


def _left_alone(spec: TrainingJobSpec) -> TrainingJobSpec:
    """``spec`` with replicas that its controller lets go on when the job has succeeded."""
    policy = spec.run_policy.clean_pod_policy
    if policy in ("Running", "All"):
        raise InvalidInput(
            "spec.runPolicy.cleanPodPolicy",
            policy,
            "replicas that wait_for names would be killed when the job has succeeded; leave it out",
        )
    return replace(spec, run_policy=replace(spec.run_policy, clean_pod_policy="None"))


def _warn_of_evaluator(spec: TrainingJobSpec) -> None:
    """Unless it was said already that the job's own policy kills it."""
    if "Evaluator" in spec.replicas and spec.run_policy.clean_pod_policy in (None, "None"):
        warnings.warn(
            "the Evaluator is killed in the middle of its work, since the task deletes the job as soon as it has "
            "succeeded; say wait_for='evaluator'",
            ManifestWarning,
            stacklevel=2,
        )


def _check_either(
    kind: Framework | None, given: Mapping[str, Any], typed: Sequence[str], *, has_manifest: bool
) -> None:
    said = [name for name in typed if given.get(name) not in (None, {}, [])]
    if has_manifest and said:
        raise InvalidInput(
            said[0], given[said[0]], "a manifest is given as well; say it there, or leave the manifest out"
        )
    if not has_manifest and kind is None:
        raise InvalidInput(
            "manifest",
            None,
            "give one, or use TFJobOperator, PyTorchJobOperator or XGBoostJobOperator with an image",
        )


def _from_given_manifest(kind: Framework | None, given: Any) -> TrainingJobSpec:
    if isinstance(given, str) and "\n" not in given.strip() and ":" not in given:
        raise InvalidInput(
            "manifest", given, f"give a mapping, YAML text, or the path of a {', '.join(_FILES)} file"
        )
    spec = from_manifest(given if isinstance(given, str) else _unquoted(as_json("manifest", given)))
    if kind is not None and spec.kind != kind.kind:
        raise InvalidInput(
            "kind", spec.kind, f"this operator runs a {kind.kind}; use TrainingJobOperator for any kind"
        )
    if spec.name is not None:
        check_prefix(spec.name)
    return spec


def _check_starts(spec: TrainingJobSpec) -> None:
    """No limit of single-job mode ends the wait for somebody who resumes the job."""
    if spec.run_policy.suspend:
        raise InvalidInput(
            "spec.runPolicy.suspend", True, "in single-job mode nothing would start the job; leave it out"
        )


def _unquoted(manifest: Any) -> Any:
    """Whole numbers and booleans that rendering left as text, at job level, where Kubernetes takes no text."""
    whole = (
        "replicas", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit", "minAvailable",
        "scheduleTimeoutSeconds", "minReplicas", "maxReplicas", "maxRestarts", "nProcPerNode", "rdzvPort",
    )  # fmt: skip
    booleans = {"True": True, "true": True, "False": False, "false": False}

    def unquoted(name: str, value: Any) -> Any:
        if name in whole and isinstance(value, str) and value.isdecimal():
            return int(value)
        if name in ("suspend", "standalone", "enableDynamicWorker") and isinstance(value, str):
            return booleans.get(value, value)
        return value if name == "template" else _unquoted(value)

    if isinstance(manifest, dict):
        return {name: unquoted(name, value) for name, value in manifest.items()}
    return [_unquoted(item) for item in manifest] if isinstance(manifest, list) else manifest
