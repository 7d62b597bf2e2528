"""What a new try does with the jobs that are there: adopt, delete, create.

Each try of a task instance has a token of its own (its UUID); a job carries the token of the try it belongs to. The
task's state store remembers, for each try that submitted a job, its token and how far it came. Labels find jobs;
tokens alone decide whose they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from airflow_kftrain.jobs import identity
from airflow_kftrain.jobs.status import JobStatus


class Phase(StrEnum):
    """How far a try came with its job."""

    SUBMITTING = "submitting"
    """Before the POST: whether the job is there is unknown."""
    CREATED = "created"
    """The API server has confirmed it."""
    WAITING = "waiting"
    """The task was about to defer; from here on somebody who ends the try means it."""
    KILLED = "killed"
    """The operator's on_kill ran."""


_ADOPTABLE = (Phase.SUBMITTING, Phase.CREATED)
_MOST_REMEMBERED = 50


@dataclass(frozen=True, slots=True)
class Try:
    """One try and its job, as the state store remembers it.

    :param token: UUID of the task instance in that try
    :param name: of the job
    :param uid: of the job; None until its creation is confirmed
    """

    token: str
    name: str
    phase: Phase
    uid: str | None = None

    def created(self, uid: str) -> Try:
        """The same, with the job's creation confirmed."""
        return replace(self, phase=Phase.CREATED, uid=uid)

    def now(self, phase: Phase) -> Try:
        """The same in another phase."""
        return replace(self, phase=phase)


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take this job as this try's own.

    :param rewrite: its token is an earlier try's; rewrite it first, under the resource version
    """

    name: str
    uid: str
    resource_version: str
    rewrite: bool


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete this leftover of an earlier try, under uid and resource version."""

    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class Create:
    """Submit a new job under this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """A stranger's job holds our name: fail, and leave it alone."""

    name: str
    uid: str
    owner: str | None


Action = Adopt | Delete | Create | Refuse


def decide(
    own: Try,
    earlier: Sequence[Try],
    jobs: Sequence[Mapping[str, Any]],
    *,
    keep_finished: bool = False,
) -> list[Action]:
    """What the present try does with the jobs it finds, in this order.

    - A job with our own token is the earlier success of our own call: adopted as it is. Should there be several, the
      one we remember stays, the others are leftovers.
    - The job of the latest earlier try is adopted when that try died before it could defer (``submitting``,
      ``created``), unless the job has finished or is being deleted.
    - Any other job with an earlier try's token is a leftover and deleted.
    - A job with any other token, or none, is a stranger's and never touched; we refuse to create beside one that
      holds our name.
    - Without a job to adopt, a new one is created.

    Deletes come first, so that a leftover does not hold what the job needs.

    :param own: the present try, with the name its job is to have
    :param earlier: what the state store remembers of earlier tries, oldest first
    :param jobs: job objects found by label or by name, in any order
    :param keep_finished: leave finished leftovers for people to look at
    """
    before = [t for t in earlier if t.token != own.token]
    tokens = {t.token for t in before}
    found = [job for job in jobs if identity.token(job) in tokens]
    others = [job for job in jobs if identity.token(job) not in tokens]
    ours = sorted(
        (job for job in others if identity.token(job) == own.token and not _deleting(job)),
        key=lambda job: (_meta(job).get("uid") != own.uid, _meta(job).get("name") != own.name),
    )
    inherited = [job for job in found if before and _may_adopt(before[-1], job)]
    taken = next(iter([*ours, *inherited]), None)
    actions: list[Action] = [
        Delete(*_ids(job)) for job in (*found, *ours) if job is not taken and _must_go(job, keep_finished)
    ]
    if taken is not None:
        return [*actions, Adopt(*_ids(taken), rewrite=taken not in ours)]
    in_the_way = next((job for job in others if _meta(job).get("name") == own.name), None)
    if in_the_way is not None and identity.token(in_the_way) != own.token:
        return [*actions, Refuse(own.name, _meta(in_the_way).get("uid", ""), identity.token(in_the_way))]
    return [*actions, Create(own.name)]


def still_ours(job: Mapping[str, Any], uid: str, tokens: Iterable[str]) -> bool:
    """Whether a job, read again after a 409, may still be deleted or adopted: same object, one of our tokens."""
    return _meta(job).get("uid") == uid and identity.token(job) in set(tokens)


def remember(tries: Sequence[Try], present: Try) -> list[Try]:
    """The tries with the present one last, in place of what was remembered of it; the oldest are forgotten."""
    return [*(t for t in tries if t.token != present.token), present][-_MOST_REMEMBERED:]


def tries_to_json(tries: Iterable[Try]) -> list[dict[str, Any]]:
    """What the state store holds."""
    return [asdict(t) for t in tries]


def tries_from_json(value: Any) -> list[Try]:
    """What :func:`tries_to_json` gave; entries that cannot be read (an older version's) are left out."""
    found = []
    for entry in value if isinstance(value, list) else ():
        try:
            found.append(Try(entry["token"], entry["name"], Phase(entry["phase"]), entry.get("uid")))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return found


def _may_adopt(latest: Try, job: Mapping[str, Any]) -> bool:
    same = _meta(job).get("uid") == latest.uid if latest.uid else _meta(job).get("name") == latest.name
    return (
        same
        and latest.phase in _ADOPTABLE
        and not _deleting(job)
        and not JobStatus.from_object(job).state.final
    )


def _must_go(job: Mapping[str, Any], keep_finished: bool) -> bool:
    return not _deleting(job) and not (keep_finished and JobStatus.from_object(job).state.final)


def _deleting(job: Mapping[str, Any]) -> bool:
    return bool(_meta(job).get("deletionTimestamp"))


def _ids(job: Mapping[str, Any]) -> tuple[str, str, str]:
    metadata = _meta(job)
    return metadata["name"], metadata["uid"], metadata["resourceVersion"]


def _meta(job: Mapping[str, Any]) -> Mapping[str, Any]:
    return job.get("metadata") or {}
