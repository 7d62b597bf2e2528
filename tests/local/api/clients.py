"""Three clients behind one face, so that one suite asks an API server the same things through each of them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import kubernetes
import kubernetes_asyncio
from kubernetes_asyncio.client import Configuration as AsyncConfiguration

from airflow_kftrain.cluster.resources import Resource

Json = dict[str, Any]
Result = TypeVar("Result")
SECONDS = 20

STYLES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Refused(Exception):
    """The server said no; ``reason`` is that of its Status object."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Listing:
    items: list[Json]
    resource_version: str

    @property
    def names(self) -> list[str]:
        """All but the ConfigMap that a controller manager puts into every namespace."""
        return [name for item in self.items if (name := item["metadata"]["name"]) != "kube-root-ca.crt"]


class Client(ABC):
    """What the suite asks; objects are plain dicts. Every call raises :class:`Refused`."""

    name: str

    @abstractmethod
    def create(self, resource: Resource, obj: Json, namespace: str, *, dry_run: bool = False) -> Json: ...

    @abstractmethod
    def get(self, resource: Resource, name: str, namespace: str) -> Json: ...

    @abstractmethod
    def list(
        self, resource: Resource, namespace: str, *, labels: str = "", fields: str = "", limit: int = 0
    ) -> Listing: ...

    @abstractmethod
    def replace(self, resource: Resource, obj: Json, namespace: str) -> Json: ...

    @abstractmethod
    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str,
        style: str = "merge",
        subresource: str = "",
    ) -> Json: ...

    @abstractmethod
    def apply(
        self, resource: Resource, obj: Json, namespace: str, *, manager: str, force: bool = False
    ) -> Json: ...

    @abstractmethod
    def delete(
        self, resource: Resource, name: str, namespace: str, *, grace: int | None = None, policy: str = ""
    ) -> None: ...

    @abstractmethod
    def delete_all(self, resource: Resource, namespace: str, *, labels: str) -> None: ...

    @abstractmethod
    def watch(
        self, resource: Resource, namespace: str, act: Callable[[], object], count: int, *, labels: str = ""
    ) -> list[tuple[str, str]]:
        """(type, name) of the first ``count`` changes that follow once ``act`` is called."""

    @abstractmethod
    def logs(self, pod: str, namespace: str, **options: Any) -> str: ...

    def create_all(self, resource: Resource, objects: list[Json], namespace: str) -> None:
        """Create several objects of one kind."""
        for obj in objects:
            self.create(resource, obj, namespace)

    def missing(self, resource: Resource, name: str, namespace: str) -> bool:
        try:
            self.get(resource, name, namespace)
        except Refused as refusal:
            return refusal.reason == "NotFound"
        return False

    def close(self) -> None:  # noqa: B027 - only some clients hold connections
        """Let go of connections."""


def _refused(error: Any) -> Refused:
    try:
        status = json.loads(error.body)
    except (TypeError, ValueError):
        return Refused(str(error.reason), str(error.body))
    return Refused(status.get("reason", ""), status.get("message", ""))


class OfficialClient(Client):
    """The ``kubernetes`` package: its typed calls for core kinds, CustomObjectsApi for the others."""

    name = "official client"

    def __init__(self, kubeconfig: Path) -> None:
        self.api = kubernetes.config.new_client_from_config(str(kubeconfig))
        self.core = kubernetes.client.CoreV1Api(self.api)
        self.custom = kubernetes.client.CustomObjectsApi(self.api)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return self.api.sanitize_for_serialization(method(*args, _request_timeout=SECONDS, **kwargs))
        except kubernetes.client.ApiException as error:
            raise _refused(error) from error

    def _method(self, verb: str, resource: Resource, suffix: str = "") -> Callable[..., Any]:
        return getattr(
            _typed_api(kubernetes.client, self.api, resource), _method_name(verb, resource, suffix)
        )

    def create(self, resource: Resource, obj: Json, namespace: str, *, dry_run: bool = False) -> Json:
        more = {"dry_run": "All"} if dry_run else {}
        if _typed(resource):
            return self._call(self._method("create", resource), *_space(resource, namespace), obj, **more)
        return self._call(
            self.custom.create_namespaced_custom_object, *_custom(resource, namespace), obj, **more
        )

    def get(self, resource: Resource, name: str, namespace: str) -> Json:
        if _typed(resource):
            return self._call(self._method("read", resource), name, *_space(resource, namespace))
        return self._call(self.custom.get_namespaced_custom_object, *_custom(resource, namespace), name)

    def list(
        self, resource: Resource, namespace: str, *, labels: str = "", fields: str = "", limit: int = 0
    ) -> Listing:
        more = {"label_selector": labels, "field_selector": fields}
        items: list[Json] = []
        token = ""
        while True:
            page = {**more, **({"limit": limit} if limit else {}), **({"_continue": token} if token else {})}
            if _typed(resource):
                found = self._call(self._method("list", resource), *_space(resource, namespace), **page)
            else:
                found = self._call(
                    self.custom.list_namespaced_custom_object, *_custom(resource, namespace), **page
                )
            items += found["items"]
            token = found["metadata"].get("continue", "")
            if not token:
                return Listing(items, found["metadata"]["resourceVersion"])

    def replace(self, resource: Resource, obj: Json, namespace: str) -> Json:
        name = obj["metadata"]["name"]
        if _typed(resource):
            return self._call(self._method("replace", resource), name, *_space(resource, namespace), obj)
        return self._call(
            self.custom.replace_namespaced_custom_object, *_custom(resource, namespace), name, obj
        )

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str,
        style: str = "merge",
        subresource: str = "",
    ) -> Json:
        path = resource.path(namespace if resource.namespaced else None, name, subresource or None)
        return self._send("PATCH", path, patch, STYLES[style])

    def _send(self, method: str, path: str, body: Any, content_type: str, query: Any = ()) -> Json:
        try:
            data, _, _ = self.api.call_api(
                path,
                method,
                header_params={"Content-Type": content_type, "Accept": "application/json"},
                query_params=list(query),
                body=body,
                auth_settings=["BearerToken"],
                response_types_map={200: "object", 201: "object"},
                _request_timeout=SECONDS,
            )
        except kubernetes.client.ApiException as error:
            raise _refused(error) from error
        return data

    def apply(
        self, resource: Resource, obj: Json, namespace: str, *, manager: str, force: bool = False
    ) -> Json:
        name = obj["metadata"]["name"]
        path = resource.path(namespace if resource.namespaced else None, name)
        query = [("fieldManager", manager), ("force", str(force).lower())]
        self._send("PATCH", path, obj, STYLES["apply"], query)
        return self.get(resource, name, namespace)  # a 201 to a PATCH is None in this client

    def delete(
        self, resource: Resource, name: str, namespace: str, *, grace: int | None = None, policy: str = ""
    ) -> None:
        more: Json = {} if grace is None else {"grace_period_seconds": grace}
        if policy:
            more["propagation_policy"] = policy
        if _typed(resource):
            self._call(self._method("delete", resource), name, *_space(resource, namespace), **more)
        else:
            self._call(
                self.custom.delete_namespaced_custom_object, *_custom(resource, namespace), name, **more
            )

    def delete_all(self, resource: Resource, namespace: str, *, labels: str) -> None:
        if _typed(resource):
            method = self._method("delete_collection", resource)
            self._call(method, namespace, label_selector=labels)
        else:
            method = self.custom.delete_collection_namespaced_custom_object
            self._call(method, *_custom(resource, namespace), label_selector=labels)

    def watch(
        self, resource: Resource, namespace: str, act: Callable[[], object], count: int, *, labels: str = ""
    ) -> list[tuple[str, str]]:
        start = self.list(resource, namespace, labels=labels).resource_version
        act()
        seen: list[tuple[str, str]] = []
        watch = kubernetes.watch.Watch()
        options = {"resource_version": start, "label_selector": labels, "timeout_seconds": SECONDS}
        if _typed(resource):
            stream = watch.stream(self._method("list", resource), *_space(resource, namespace), **options)
        else:
            method = self.custom.list_namespaced_custom_object
            stream = watch.stream(method, *_custom(resource, namespace), **options)
        for event in stream:
            seen.append((event["type"], event["raw_object"]["metadata"]["name"]))
            if len(seen) == count:
                watch.stop()
        return seen

    def logs(self, pod: str, namespace: str, **options: Any) -> str:
        try:
            response = self.core.read_namespaced_pod_log(
                pod, namespace, _preload_content=False, _request_timeout=SECONDS, **options
            )
            return response.data.decode()
        except kubernetes.client.ApiException as error:
            raise _refused(error) from error

    def close(self) -> None:
        self.api.close()


class AsyncClient(Client):
    """The ``kubernetes_asyncio`` package, on an event loop in a thread of its own."""

    name = "asyncio client"

    def __init__(self, kubeconfig: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.api = self._wait(self._connect(kubeconfig))
        self.custom = kubernetes_asyncio.client.CustomObjectsApi(self.api)
        self.core = kubernetes_asyncio.client.CoreV1Api(self.api)

    @staticmethod
    async def _connect(kubeconfig: Path) -> Any:
        configuration = AsyncConfiguration()
        await kubernetes_asyncio.config.load_kube_config(str(kubeconfig), client_configuration=configuration)
        return kubernetes_asyncio.client.ApiClient(configuration)

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS * 2)

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        async def call() -> Any:
            return await method(*args, _request_timeout=SECONDS, **kwargs)

        try:
            return self.api.sanitize_for_serialization(self._wait(call()))
        except kubernetes_asyncio.client.ApiException as error:
            raise _refused(error) from error

    def _method(self, verb: str, resource: Resource) -> Callable[..., Any]:
        return getattr(
            _typed_api(kubernetes_asyncio.client, self.api, resource), _method_name(verb, resource)
        )

    def create(self, resource: Resource, obj: Json, namespace: str, *, dry_run: bool = False) -> Json:
        more = {"dry_run": "All"} if dry_run else {}
        if _typed(resource):
            return self._call(self._method("create", resource), *_space(resource, namespace), obj, **more)
        return self._call(
            self.custom.create_namespaced_custom_object, *_custom(resource, namespace), obj, **more
        )

    def get(self, resource: Resource, name: str, namespace: str) -> Json:
        if _typed(resource):
            return self._call(self._method("read", resource), name, *_space(resource, namespace))
        return self._call(self.custom.get_namespaced_custom_object, *_custom(resource, namespace), name)

    def list(
        self, resource: Resource, namespace: str, *, labels: str = "", fields: str = "", limit: int = 0
    ) -> Listing:
        more: Json = {"label_selector": labels, "field_selector": fields}
        items: list[Json] = []
        while True:
            page = {**more, **({"limit": limit} if limit else {})}
            if _typed(resource):
                found = self._call(self._method("list", resource), *_space(resource, namespace), **page)
            else:
                found = self._call(
                    self.custom.list_namespaced_custom_object, *_custom(resource, namespace), **page
                )
            items += found["items"]
            more["_continue"] = found["metadata"].get("continue", "")
            if not more["_continue"]:
                return Listing(items, found["metadata"]["resourceVersion"])

    def replace(self, resource: Resource, obj: Json, namespace: str) -> Json:
        name = obj["metadata"]["name"]
        if _typed(resource):
            return self._call(self._method("replace", resource), name, *_space(resource, namespace), obj)
        return self._call(
            self.custom.replace_namespaced_custom_object, *_custom(resource, namespace), name, obj
        )

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str,
        style: str = "merge",
        subresource: str = "",
    ) -> Json:
        path = resource.path(namespace if resource.namespaced else None, name, subresource or None)
        return self._send("PATCH", path, patch, STYLES[style])

    def _send(self, method: str, path: str, body: Any, content_type: str, query: Any = ()) -> Json:
        async def send() -> Any:
            return await self.api.call_api(
                path,
                method,
                header_params={"Content-Type": content_type, "Accept": "application/json"},
                query_params=list(query),
                body=body,
                auth_settings=["BearerToken"],
                response_types_map={200: "object", 201: "object"},
                _request_timeout=SECONDS,
            )

        try:
            return self._wait(send())[0]
        except kubernetes_asyncio.client.ApiException as error:
            raise _refused(error) from error

    def apply(
        self, resource: Resource, obj: Json, namespace: str, *, manager: str, force: bool = False
    ) -> Json:
        name = obj["metadata"]["name"]
        path = resource.path(namespace if resource.namespaced else None, name)
        query = [("fieldManager", manager), ("force", str(force).lower())]
        self._send("PATCH", path, obj, STYLES["apply"], query)
        return self.get(resource, name, namespace)

    def delete(
        self, resource: Resource, name: str, namespace: str, *, grace: int | None = None, policy: str = ""
    ) -> None:
        more: Json = {} if grace is None else {"grace_period_seconds": grace}
        if policy:
            more["propagation_policy"] = policy
        if _typed(resource):
            self._call(self._method("delete", resource), name, *_space(resource, namespace), **more)
        else:
            self._call(
                self.custom.delete_namespaced_custom_object, *_custom(resource, namespace), name, **more
            )

    def delete_all(self, resource: Resource, namespace: str, *, labels: str) -> None:
        if _typed(resource):
            self._call(self._method("delete_collection", resource), namespace, label_selector=labels)
        else:
            method = self.custom.delete_collection_namespaced_custom_object
            self._call(method, *_custom(resource, namespace), label_selector=labels)

    def watch(
        self, resource: Resource, namespace: str, act: Callable[[], object], count: int, *, labels: str = ""
    ) -> list[tuple[str, str]]:
        start = self.list(resource, namespace, labels=labels).resource_version
        act()
        options = {"resource_version": start, "label_selector": labels, "timeout_seconds": SECONDS}

        async def follow() -> list[tuple[str, str]]:
            seen: list[tuple[str, str]] = []
            async with kubernetes_asyncio.watch.Watch() as watch:
                if _typed(resource):
                    stream = watch.stream(
                        self._method("list", resource), *_space(resource, namespace), **options
                    )
                else:
                    method = self.custom.list_namespaced_custom_object
                    stream = watch.stream(method, *_custom(resource, namespace), **options)
                async for event in stream:
                    seen.append((event["type"], event["raw_object"]["metadata"]["name"]))
                    if len(seen) == count:
                        break
            return seen

        return self._wait(follow())

    def logs(self, pod: str, namespace: str, **options: Any) -> str:
        async def read() -> str:
            response = await self.core.read_namespaced_pod_log(
                pod, namespace, _preload_content=False, _request_timeout=SECONDS, **options
            )
            text = await response.text()
            if response.status >= 400:
                status = json.loads(text)
                raise Refused(status["reason"], status["message"])
            return text

        try:
            return self._wait(read())
        except kubernetes_asyncio.client.ApiException as error:
            raise _refused(error) from error

    def close(self) -> None:
        self._wait(self.api.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


class Kubectl(Client):
    """``kubectl`` as a subprocess."""

    name = "kubectl"
    _ERROR = re.compile(r"Error from server(?: \((?P<reason>\w+)\))?: (?P<message>.*)", re.DOTALL)
    # kubectl words a 422 without "Error from server".
    _INVALID = re.compile(r"^The .* is invalid", re.MULTILINE)

    def __init__(self, program: str, kubeconfig: Path, home: Path) -> None:
        self._program = program
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(kubeconfig),
            "KUBE_EDITOR": "false",
        }

    def run(self, *args: str, stdin: str = "") -> str:
        """Standard output of one command."""
        done = self.run_raw(*args, stdin=stdin)
        if done.returncode == 0:
            return done.stdout
        found = self._ERROR.search(done.stderr)
        if found:
            raise Refused(found["reason"] or _reason_in(found["message"]), found["message"].strip())
        if self._INVALID.search(done.stderr):
            raise Refused("Invalid", done.stderr.strip())
        raise Refused(_reason_in(done.stderr), done.stderr.strip())

    def run_raw(self, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program, *args],
            input=stdin,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS * 2,
            check=False,
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        """A command that goes on."""
        return subprocess.Popen(
            [self._program, *args],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def create(self, resource: Resource, obj: Json, namespace: str, *, dry_run: bool = False) -> Json:
        more = ["--dry-run=server"] if dry_run else []
        typed = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return json.loads(
            self.run("create", "-n", namespace, "-f-", "-ojson", *more, stdin=json.dumps(typed))
        )

    def create_all(self, resource: Resource, objects: list[Json], namespace: str) -> None:
        typed = [{"apiVersion": resource.api_version, "kind": resource.kind, **obj} for obj in objects]
        listed = {"apiVersion": "v1", "kind": "List", "items": typed}
        self.run("create", "-n", namespace, "-f-", stdin=json.dumps(listed))

    def get(self, resource: Resource, name: str, namespace: str) -> Json:
        return json.loads(self.run("get", "-n", namespace, _kubectl_name(resource), name, "-ojson"))

    def list(
        self, resource: Resource, namespace: str, *, labels: str = "", fields: str = "", limit: int = 0
    ) -> Listing:
        args = ["get", "-n", namespace, _kubectl_name(resource), "-ojson", f"--chunk-size={limit or 500}"]
        args += [f"-l{labels}"] if labels else []
        args += [f"--field-selector={fields}"] if fields else []
        found = json.loads(self.run(*args))
        return Listing(found["items"], found["metadata"]["resourceVersion"])

    def replace(self, resource: Resource, obj: Json, namespace: str) -> Json:
        typed = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return json.loads(self.run("replace", "-n", namespace, "-f-", "-ojson", stdin=json.dumps(typed)))

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str,
        style: str = "merge",
        subresource: str = "",
    ) -> Json:
        more = [f"--subresource={subresource}"] if subresource else []
        target = ["-n", namespace, _kubectl_name(resource), name, f"--type={style}", "-ojson"]
        return json.loads(self.run("patch", *target, "-p", json.dumps(patch), *more))

    def apply(
        self, resource: Resource, obj: Json, namespace: str, *, manager: str, force: bool = False
    ) -> Json:
        typed = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        more = ["--force-conflicts"] if force else []
        args = [
            "apply",
            "--server-side",
            "-n",
            namespace,
            f"--field-manager={manager}",
            "-f-",
            "-ojson",
            *more,
        ]
        return json.loads(self.run(*args, stdin=json.dumps(typed)))

    def delete(
        self, resource: Resource, name: str, namespace: str, *, grace: int | None = None, policy: str = ""
    ) -> None:
        more = [] if grace is None else [f"--grace-period={grace}", *(["--force"] if grace == 0 else [])]
        more += [f"--cascade={policy.lower()}"] if policy else []
        self.run("delete", "-n", namespace, _kubectl_name(resource), name, "--wait=false", *more)

    def delete_all(self, resource: Resource, namespace: str, *, labels: str) -> None:
        self.run("delete", "-n", namespace, _kubectl_name(resource), f"-l{labels}", "--wait=false")

    def watch(
        self, resource: Resource, namespace: str, act: Callable[[], object], count: int, *, labels: str = ""
    ) -> list[tuple[str, str]]:
        more = [f"-l{labels}"] if labels else []
        form = '-ojsonpath={.type} {.object.metadata.name}{"\\n"}'
        args = ["get", "-n", namespace, _kubectl_name(resource), "--watch", "--output-watch-events", form]
        # kubectl lists first and gives that as ADDED: what was there before is told apart by a first object.
        before = len(self.list(resource, namespace, labels=labels).items)
        running = self.start(*args, *more)
        timer = threading.Timer(SECONDS, running.kill)
        timer.start()
        try:
            lines = self._lines(running)
            for _ in range(before):
                next(lines)
            act()
            return list(itertools.islice(lines, count))
        finally:
            timer.cancel()
            running.kill()
            running.communicate()

    @staticmethod
    def _lines(running: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
        assert running.stdout is not None
        for line in running.stdout:
            kind, _, name = line.strip().partition(" ")
            yield kind, name

    def logs(self, pod: str, namespace: str, **options: Any) -> str:
        args = [
            f"--{_FLAGS.get(name, name.replace('_', '-'))}={_flag(name, value)}"
            for name, value in options.items()
        ]
        return self.run("logs", "-n", namespace, pod, *args)


_FLAGS = {"tail_lines": "tail", "since_seconds": "since"}


def _flag(name: str, value: Any) -> str:
    return (
        f"{value}s"
        if name == "since_seconds"
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def _reason_in(text: str) -> str:
    """The reason of a refusal that kubectl words itself."""
    for reason, words in (
        ("Conflict", "the object has been modified"),
        ("Conflict", "Apply failed with"),
        ("UnsupportedMediaType", "accepted media types include"),
        ("UnsupportedMediaType", "does not read protobuf"),
        ("BadRequest", "strict decoding error"),
        ("NotFound", "not found"),
    ):
        if words in text:
            return reason
    return "Unknown"


def _kubectl_name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.version}.{resource.group}" if resource.group else resource.plural


def _typed(resource: Resource) -> bool:
    return resource.group in ("", "coordination.k8s.io", "scheduling.k8s.io")


def _typed_api(module: Any, api: Any, resource: Resource) -> Any:
    names = {
        "": "CoreV1Api",
        "coordination.k8s.io": "CoordinationV1Api",
        "scheduling.k8s.io": "SchedulingV1Api",
    }
    return getattr(module, names[resource.group])(api)


def _method_name(verb: str, resource: Resource, suffix: str = "") -> str:
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", resource.kind).lower()
    middle = "_namespaced" if resource.namespaced else ""
    return f"{verb}{middle}_{snake}{suffix}"


def _space(resource: Resource, namespace: str) -> tuple[str, ...]:
    return (namespace,) if resource.namespaced else ()


def _custom(resource: Resource, namespace: str) -> tuple[str, str, str, str]:
    return resource.group, resource.version, namespace, resource.plural
