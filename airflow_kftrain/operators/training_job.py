"""The operator over all kinds of training job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from airflow_kftrain.exceptions import (
    ApiUnreachable,
    Invalid,
    InvalidInput,
    KFTrainError,
    NotFound,
    Unauthorized,
)
from airflow_kftrain.jobs.frameworks import Framework, framework
from airflow_kftrain.jobs.tries import Phase
from airflow_kftrain.links import JobLink, JobLogsLink, JobPlanLink
from airflow_kftrain.operators.arguments import Arguments
from airflow_kftrain.operators.early import comes_later, known_part, size_comes_later
from airflow_kftrain.operators.plan import (
    JobPlan,
    check_exit_codes,
    check_on_finish,
    make_plan,
    manifest_file,
    read_manifest,
)
from airflow_kftrain.settings import read_settings
from airflow_kftrain.triggers.events import FinalEvent, JobRef

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

    from airflow_kftrain.operators.groups import Env, Limits, Place, Replica
    from airflow_kftrain.operators.this_try import ThisTry

_ENDED = {
    "failed": "failed",
    "gone": "is gone",
    "limit": "was stopped",
    "unreadable": "was lost from sight",
    "error": "was lost from sight",
}

_ASKED: dict[type[KFTrainError], str] = {
    ApiUnreachable: "and does the cluster run",
    Unauthorized: "and are its credentials still valid",
}


class TrainingJobFailed(AirflowException):
    """The job did not succeed; the text says which job and why."""


class TrainingJobOperator(BaseOperator):
    """Runs a training job, waits for its whole gang, follows it to the end, and returns its outcome.

    What to run is said with typed arguments (in an operator of one kind) or with ``manifest``, never both. ``gpus``,
    ``cpu`` and ``memory`` are per replica. The outcome (state, cause, times, exit codes, last metrics, model) is the
    task's ``return_value``, at most 48 KiB of JSON.

    :param image: container image
    :param command: entry point of the training container; the image's own when absent
    :param args: its arguments
    :param env: names to values, or Kubernetes ``EnvVar`` objects
    :param workers: number of Worker replicas, 1 when absent
    :param gpus: a number of ``nvidia.com/gpu``, or resource names to numbers
    :param cpu: Kubernetes quantity
    :param memory: Kubernetes quantity
    :param replicas: replica type to :class:`~airflow_kftrain.operators.groups.Replica`: what differs there, a whole
        pod template included
    :param run_policy: fields of the job's ``runPolicy``, as Kubernetes writes them
    :param manifest: the whole job: a mapping, YAML text, or the path of a ``.yaml``, ``.yml`` or ``.json`` file
        (relative to the DAG's file); its ``metadata.name`` becomes the prefix of the real name
    :param namespace: the manifest's, else the connection's when absent
    :param mode: ``single-job`` or ``cluster``; ``[kftrain] mode`` when absent
    :param place: where and how urgently to admit it (cluster mode)
    :param limits: the longest spans to wait (:class:`~airflow_kftrain.operators.groups.Limits`)
    :param logs: whose log lines to copy into the task's log: a replica (``worker-0``), a replica type (``master``), a
        list of these, ``all``, ``none``, or ``first`` (Master, Chief, else worker 0)
    :param wait_for: replicas or replica types (``evaluator``), or ``all``, that may still run when the job has
        succeeded, and whose end the task waits for as well, at most ``limits["after"]``
    :param on_finish_action: ``delete_succeeded``, ``delete`` or ``keep``; an unfinished job is ended in any case
    :param skip_on_exit_code: exit codes of a failed replica that skip the task instead of failing it
    :param kubernetes_conn_id: a ``kubernetes`` (or ``kftrain``) connection
    :param deferrable: wait in the triggerer (default) rather than on a worker slot
    :raises InvalidInput: an argument cannot be used, as far as that can be known while the DAG is parsed
    """

    kind: ClassVar[str | None] = None
    typed_options: ClassVar[tuple[str, ...]] = ()
    """Further arguments of a kind that say what a manifest would say."""

    template_fields: Sequence[str] = (
        "image",
        "command",
        "args",
        "env",
        "workers",
        "gpus",
        "cpu",
        "memory",
        "replicas",
        "run_policy",
        "manifest",
        "namespace",
        "place",
        "limits",
        "logs",
        "wait_for",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "manifest": "yaml",
        "env": "json",
        "replicas": "json",
    }
    operator_extra_links = (JobLink(), JobLogsLink(), JobPlanLink())
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        image: str | None = None,
        command: Sequence[Any] | None = None,
        args: Sequence[Any] | None = None,
        env: Env | None = None,
        workers: int | str | None = None,
        gpus: int | str | Mapping[str, Any] | None = None,
        cpu: int | float | str | None = None,
        memory: int | str | None = None,
        replicas: Mapping[str, Replica | Mapping[str, Any]] | None = None,
        run_policy: Mapping[str, Any] | None = None,
        manifest: Mapping[str, Any] | str | Path | None = None,
        namespace: str | None = None,
        mode: str | None = None,
        place: Place | Mapping[str, Any] | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        logs: str | Sequence[str] | None = None,
        wait_for: str | Sequence[str] | None = None,
        on_finish_action: str = "delete_succeeded",
        skip_on_exit_code: int | Sequence[int] | None = None,
        kubernetes_conn_id: str = "kubernetes_default",
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image = image
        self.command = command
        self.args = args
        self.env = env
        self.workers = workers
        self.gpus = gpus
        self.cpu = cpu
        self.memory = memory
        self.replicas = replicas
        self.run_policy = run_policy
        self.manifest = str(manifest) if isinstance(manifest, Path) else manifest
        self.namespace = namespace
        self.mode = mode
        self.place = place
        self.limits = limits
        self.logs = logs
        self.wait_for = wait_for
        self.on_finish_action = check_on_finish(on_finish_action)
        self.skip_on_exit_code = sorted(check_exit_codes(skip_on_exit_code))
        self.kubernetes_conn_id = kubernetes_conn_id
        self.deferrable = deferrable
        self.link_values: dict[str, str] = {}
        self._try: ThisTry | None = None
        self._check_what_is_known()

    # What to run

    def counts(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replica type to number, from the arguments of a kind."""
        raise NotImplementedError

    def options(self, given: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
        """Fields under ``spec`` that only the kind has, from the arguments of a kind."""
        return {}

    def _check_what_is_known(self) -> None:
        """Find mistakes while the DAG is parsed; what is rendered later is checked when the task runs."""
        given = self._given()
        later = comes_later(self.manifest)
        file = None if later else manifest_file(self.manifest)
        if file is not None:
            folders = self._folders()
            given["manifest"] = read_manifest(file, folders) if folders or file.is_absolute() else None
            later = given["manifest"] is None or comes_later(given["manifest"])
        if later:
            given["manifest"] = None
        self._plan(known_part(given), later=later, size_unknown=size_comes_later(given))

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.template_fields}

    def _plan(self, given: Mapping[str, Any], *, later: bool = False, size_unknown: bool = False) -> JobPlan:
        return make_plan(
            framework(self.kind) if self.kind is not None else None,
            given,
            typed=self._arguments,
            extra_typed=self.typed_options,
            mode=self.mode,
            settings=read_settings(),
            deletes=self.on_finish_action != "keep",
            manifest_unknown=later,
            size_unknown=size_unknown,
        )

    def _arguments(self, kind: Framework, given: Mapping[str, Any]) -> Arguments:
        same = ("image", "command", "args", "env", "gpus", "cpu", "memory", "run_policy")
        return Arguments(
            kind,
            **{name: given.get(name) for name in same},
            counts=self.counts(given),
            replicas=given.get("replicas") or {},
            options=self.options(given),
        )

    def _folders(self) -> list[Path]:
        """Where a relative manifest file is looked for: beside the DAG's file, then in its template folders."""
        if not self.has_dag():  # type: ignore[no-untyped-call]
            return []
        searched = self.dag.template_searchpath or ()
        return [
            Path(self.dag.fileloc).parent,
            *map(Path, [searched] if isinstance(searched, str) else searched),
        ]

    # One try

    def execute(self, context: Context) -> Any:
        """Submit (or take over) the job, then wait for it."""
        plan = self._rendered_plan(context)
        assert plan.spec is not None
        try:
            self._try = self._this_try(context, plan.spec.kind, self.namespace or plan.spec.namespace)
            job = self._try.submit(plan.spec, keep_finished=self.on_finish_action != "delete")
        except KFTrainError as error:
            # The text says it all; what led to it is five tracebacks long.
            self.log.debug("This led to the failure", exc_info=True)
            raise _in_airflow_words(error, self.kubernetes_conn_id) from None
        self.log.info("%s is submitted (uid %s)", job, job.uid)
        self._link(job)
        if self.deferrable:
            self._defer(job, plan)
        return self.execute_complete(context, self._wait(job, plan).to_payload())

    def execute_complete(self, context: Context, event: Any = None) -> dict[str, Any]:
        """From the final event to the task's own end: the outcome, or an exception."""
        final = FinalEvent.of(event)
        if final.job.owner != str(context["ti"].id):
            self._follow_own_job(context, final)
        self._link(final.job)
        self._dispose(context, final)
        outcome = dict(final.outcome)
        if final.end == "succeeded":
            return outcome
        context["ti"].xcom_push(key="return_value", value=outcome or None)
        raise self._failure(final)

    def _follow_own_job(self, context: Context, stray: FinalEvent) -> None:
        """Wait for this try's own job again, after an event that is another try's.

        Airflow finds the task of an event by the trigger's id, and SQLite gives the id of a deleted trigger to the next
        one: a trigger that ends while its task is cleared can so resume the new try.
        """
        self._try = self._this_try(context, stray.job.kind, stray.job.namespace)
        own = self._try.own
        if own is None or own.uid is None:
            return
        self.log.warning("The event is about %s, which is another try's: waiting for our own job", stray.job)
        job = JobRef(stray.job.kind, self._try.namespace, own.name, own.uid, own.token)
        self._defer(job, self._rendered_plan(context))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume; where the trigger timed out or could not run, Airflow asks nobody else to end the job."""
        if next_method == "__fail__":
            self._end_without_event(context)
        return super().resume_execution(next_method, next_kwargs, context)

    def on_kill(self) -> None:
        """End the job of a try that is killed while it is in a worker."""
        if self._try is not None:
            # A job whose leftovers are waited for is not over for the task when it has succeeded.
            self._try.end(self.on_finish_action if self.wait_for else "keep", Phase.KILLED)

    def _rendered_plan(self, context: Context) -> JobPlan:
        try:
            file = manifest_file(self.manifest)
            if file is not None:
                self.manifest = self.render_template(read_manifest(file, self._folders()), context)
            return self._plan(self._given())
        except InvalidInput as error:
            raise AirflowFailException(str(error)) from None

    def _defer(self, job: JobRef, plan: JobPlan) -> NoReturn:
        from airflow_kftrain.triggers.training_job import TrainingJobTrigger

        assert self._try is not None
        assert self._try.own is not None
        self._try.remember(self._try.own.now(Phase.WAITING))
        trigger = TrainingJobTrigger(
            asdict(job),
            kubernetes_conn_id=self.kubernetes_conn_id,
            limits=asdict(plan.limits),
            logs=plan.logs,
            wait_for=plan.wait_for,
            keep=self.on_finish_action == "keep",
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    def _wait(self, job: JobRef, plan: JobPlan) -> FinalEvent:
        """The same wait on this worker."""
        from airflow_kftrain.hooks.training_job import run_in_loop
        from airflow_kftrain.triggers.observer import Observer, Wishes

        assert self._try is not None
        hook = self._try.hook
        wishes = Wishes(
            plan.limits,
            plan.logs,
            plan.wait_for,
            self.on_finish_action == "keep",
            read_settings().progress_interval,
        )

        async def main() -> FinalEvent:
            observer = Observer(
                job,
                wishes,
                connect=hook.open,
                identity=await hook.identity(),
                say=lambda line: self.log.info("%s", line),
            )
            return await observer.run()

        return run_in_loop(main)

    # After the wait

    def _dispose(self, context: Context, final: FinalEvent) -> None:
        """Keep or delete the job; a failure here changes nothing about how the task ends."""
        job = final.job
        kept = final.end == "limit" and self.on_finish_action == "keep"
        try:
            this_try = self._this_try(context, job.kind, job.namespace)
            disposal = this_try.dispose(job.name, job.uid, self.on_finish_action, keep_suspended=kept)
        except (KFTrainError, AirflowException) as error:
            self.log.warning("%s could not be cleaned up: %s", job, error)
        else:
            if disposal != "gone":
                self.log.info("%s is %s (on_finish_action=%r)", job, disposal, self.on_finish_action)

    def _failure(self, final: FinalEvent) -> AirflowException:
        codes = {
            replica.get("exit_code")
            for replica in (final.outcome.get("replicas") or {}).values()
            if replica.get("phase") == "Failed"
        }
        text = f"{final.job} {_ENDED[final.end]}: {final.message}"
        if skipped := codes.intersection(self.skip_on_exit_code):
            return AirflowSkipException(f"{text} (exit code {min(skipped)} skips the task)")
        return TrainingJobFailed(text)

    def _end_without_event(self, context: Context) -> None:
        try:
            spec = self._rendered_plan(context).spec
            assert spec is not None
            self._this_try(context, spec.kind, self.namespace or spec.namespace).end(self.on_finish_action)
        except (KFTrainError, AirflowException) as error:
            self.log.warning("The job could not be ended, the next try or the janitor will do it: %s", error)

    def _this_try(self, context: Context, kind: str, namespace: str | None) -> ThisTry:
        from airflow_kftrain.operators.this_try import ThisTry

        return ThisTry(
            context, kind, namespace, self.kubernetes_conn_id, say=lambda line: self.log.info("%s", line)
        )

    def _link(self, job: JobRef) -> None:
        self.link_values = {
            "kind": job.kind,
            "plural": framework(job.kind).plural,
            "namespace": job.namespace,
            "name": job.name,
            "uid": job.uid,
            "instance": read_settings().instance,
        }


def _in_airflow_words(error: KFTrainError, connection: str) -> AirflowException:
    """The error as Airflow's task runner understands it: what no retry can heal is not retried."""
    if isinstance(error, ApiUnreachable | Unauthorized):
        return AirflowException(f"{error} (is the connection {connection!r} right, {_ASKED[type(error)]}?)")
    if isinstance(error, NotFound):
        return AirflowException(
            f"{error} (is the namespace there, and does the cluster know this kind? Install the training operator, "
            "or run `kftrain controllers run` with its CRDs)"
        )
    hopeless = isinstance(error, InvalidInput | Invalid)
    return (AirflowFailException if hopeless else AirflowException)(str(error))
