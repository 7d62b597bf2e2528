"""A real Kubernetes control plane on loopback: etcd, API server, controllers, schedulers, training operator, kwok.

Everything lives in one folder and on free ports, with certificates of its own; nothing of the machine is changed.
Nodes and the life of pods are played by kwok (``stages.yaml``), so that no container runtime is needed.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.build import module_of, program_path
from tests.controlplane.certificates import Authority, key_pem, new_key
from tests.controlplane.parts import Part, answers, free_ports

Object = dict[str, Any]

GANG_SCHEDULER = "gang-scheduler"
PLAYED_NODES = "kftrain.test/played"
"""Label of the nodes that kwok plays; a node without it belongs to somebody else's kubelet."""

OPERATOR_NAMESPACE = "kubeflow"
WEBHOOK_NAME = "validator.training-operator.kubeflow.org"
JOB_KINDS = ("tfjob", "pytorchjob", "xgboostjob")

# The operator waits for this very file, whatever its temp folder is; what it serves comes from its temp folder.
_OPERATOR_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")

USERS = {"admin": "system:masters", "planner": "", "person": ""}
"""Who can log in, with their groups; each user's token is the name with ``-token``."""


@dataclass(frozen=True)
class OperatorSpec:
    """One training operator: the one namespace that it sees to, and whether it makes PodGroups."""

    namespace: str
    gang: bool = True


@dataclass
class Rig:
    """The control plane in ``folder``.

    :param operators: training operators to run; one webhook validates in all of their namespaces
    :param nodes: played nodes, each with 8 GPUs

    ``operator_metrics`` has, by namespace, where each training operator tells how busy it is.
    """

    folder: Path
    operators: tuple[OperatorSpec, ...] = ()
    nodes: int = 8
    parts: dict[str, Part] = field(default_factory=dict)
    operator_metrics: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ports = iter(free_ports(16 + 3 * len(self.operators)))
        self._authority = Authority()
        self._certificates = self.folder / "certificates"
        self.ca = self._authority.pair.write(self._certificates, "ca")[0]
        self.url = f"https://127.0.0.1:{next(self._ports)}"

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of the administrator."""
        return self.kubeconfig_of("admin")

    def kubeconfig_of(self, user: str) -> Path:
        """A kubeconfig of one of USERS."""
        path = self.folder / f"{user}.kubeconfig"
        if not path.exists():
            cluster = {"server": self.url, "certificate-authority-data": _base64(self.ca.read_bytes())}
            content = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "rig",
                "clusters": [{"name": "rig", "cluster": cluster}],
                "users": [{"name": user, "user": {"token": token_of(user)}}],
                "contexts": [
                    {"name": "rig", "context": {"cluster": "rig", "user": user, "namespace": "default"}}
                ],
            }
            path.touch(mode=0o600)
            path.write_text(yaml.safe_dump(content))
        return path

    def client_certificate(self, user: str, *groups: str) -> tuple[Path, Path]:
        """Files of a certificate and its key that the API server and kubelets take for a user's."""
        return self._authority.issue(user, groups=groups).write(self._certificates, f"client-{user}")

    def start(self) -> None:
        """Start all parts and wait until each is ready.

        Raises PartFailed, which names the part; then nothing is left running.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes, last started first. Safe to call again."""
        for part in reversed(self.parts.values()):
            part.stop()

    def check(self) -> None:
        """Raise PartFailed when a part has ended by itself."""
        for part in self.parts.values():
            part.check()

    def _start(self) -> None:
        self._run(self._etcd())
        self._run(self._api_server())
        self._install_objects()
        dependents = [self._controller_manager(), self._scheduler(), self._gang_scheduler(), self._kwok()]
        dependents += self._training_operators()
        for part in dependents:
            self.parts[part.name] = part
            part.start()
        for part in dependents:
            part.wait_ready()
        self.add_nodes(f"node-{number}" for number in range(self.nodes))

    def _run(self, part: Part) -> None:
        self.parts[part.name] = part
        part.start()
        part.wait_ready()

    # ------------------------------------------------------------------ the parts

    def _etcd(self) -> Part:
        client, peer = next(self._ports), next(self._ports)
        self._etcd_url = f"http://127.0.0.1:{client}"
        peer_url = f"http://127.0.0.1:{peer}"
        command = [
            str(program_path("etcd")),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            # State lives as long as the test session: there is nothing to keep safe from a power cut.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        return self._part("etcd", command, f"{self._etcd_url}/readyz")

    def _api_server(self) -> Part:
        certificate, key = self._serving("apiserver", ("127.0.0.1", "kubernetes", "kubernetes.default.svc"))
        kubelet = self._authority.issue("kube-apiserver", groups=("system:masters",))
        kubelet_certificate, kubelet_key = kubelet.write(self._certificates, "kubelet-client")
        service_account = self._certificates / "service-account.key"
        service_account.touch(mode=0o600)
        service_account.write_bytes(key_pem(new_key()))
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(
            "".join(f'{token_of(user)},{user},{user},"{group}"\n' for user, group in USERS.items())
        )
        command = [
            str(program_path("kube-apiserver")),
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.url.rsplit(':', 1)[1]}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.ca}",
            f"--kubelet-client-certificate={kubelet_certificate}",
            f"--kubelet-client-key={kubelet_key}",
            # Names of nodes are not resolved here.
            "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={service_account}",
            f"--service-account-signing-key-file={service_account}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/16",
            # No tokens in pods: nothing runs in them that could use one.
            "--disable-admission-plugins=ServiceAccount",
            # Loopback is no address for the "kubernetes" Service, which nobody asks for here.
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self._certificates / 'apiserver'}",
        ]
        part = self._part(
            "kube-apiserver", command, f"{self.url}/readyz", ca=self.ca, token=token_of("admin")
        )
        # Open watches keep it for a minute after SIGTERM.
        part.stop_seconds = 0.5
        return part

    def _controller_manager(self) -> Part:
        port = next(self._ports)
        command = [
            str(program_path("kube-controller-manager")),
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--leader-elect=false",
            f"--service-account-private-key-file={self._certificates / 'service-account.key'}",
            f"--root-ca-file={self.ca}",
            f"--cert-dir={self._certificates / 'controller-manager'}",
        ]
        return self._part("kube-controller-manager", command, f"https://127.0.0.1:{port}/healthz")

    def _scheduler(self) -> Part:
        return self._scheduler_part("kube-scheduler", {"schedulerName": "default-scheduler"})

    def _gang_scheduler(self) -> Part:
        only = {"enabled": [{"name": "Coscheduling"}]}
        profile = {
            "schedulerName": GANG_SCHEDULER,
            "plugins": {"multiPoint": only, "queueSort": only | {"disabled": [{"name": "*"}]}},
            "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
        }
        return self._scheduler_part("gang-scheduler", profile)

    def _scheduler_part(self, name: str, profile: Object) -> Part:
        port = next(self._ports)
        configuration = self.folder / f"{name}.yaml"
        content = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 500, "burst": 1000},
            "profiles": [profile],
        }
        configuration.write_text(yaml.safe_dump(content))
        command = [
            str(program_path(name)),
            f"--config={configuration}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            f"--cert-dir={self._certificates / name}",
        ]
        return self._part(name, command, f"https://127.0.0.1:{port}/healthz")

    def _kwok(self) -> Part:
        port = next(self._ports)
        command = [
            str(program_path("kwok")),
            f"--kubeconfig={self.kubeconfig}",
            f"--manage-nodes-with-label-selector={PLAYED_NODES}=true",
            f"--config={Path(__file__).parent / 'stages.yaml'}",
            f"--server-address=127.0.0.1:{port}",
            "--node-ip=127.0.0.1",
            "--node-lease-duration-seconds=40",
        ]
        return self._part("kwok", command, f"http://127.0.0.1:{port}/readyz")

    def _training_operators(self) -> list[Part]:
        if not self.operators:
            return []
        serving = self._authority.issue(
            "training-operator", hosts=("127.0.0.1", f"training-operator.{OPERATOR_NAMESPACE}.svc")
        )
        ports = [next(self._ports) for _ in self.operators]
        self._install_webhook(serving.certificate, serving.key, ports[0])
        # The operator looks for this one path before it starts; it is not what is served.
        _OPERATOR_CERTIFICATES.mkdir(parents=True, exist_ok=True)
        (_OPERATOR_CERTIFICATES / "tls.crt").touch()
        parts = []
        for spec, port in zip(self.operators, ports, strict=True):
            part = self._training_operator(spec, port)
            folder = Path(part.environment["TMPDIR"]) / "k8s-webhook-server" / "serving-certs"
            serving.write(folder, "tls")
            parts.append(part)
        return parts

    def _training_operator(self, spec: OperatorSpec, webhook_port: int) -> Part:
        metrics, probe = next(self._ports), next(self._ports)
        self.operator_metrics[spec.namespace] = f"http://127.0.0.1:{metrics}/metrics"
        name = f"training-operator-{spec.namespace}"
        command = [
            str(program_path("training-operator")),
            f"--namespace={spec.namespace}",
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            f"--health-probe-bind-address=127.0.0.1:{probe}",
            f"--webhook-server-port={webhook_port}",
            *(f"--enable-scheme={kind}" for kind in JOB_KINDS),
            *([f"--gang-scheduler-name={GANG_SCHEDULER}"] if spec.gang else []),
        ]
        part = self._part(name, command, f"http://127.0.0.1:{probe}/readyz")
        part.environment = {
            "KUBECONFIG": str(self.kubeconfig),
            "MY_POD_NAMESPACE": OPERATOR_NAMESPACE,
            "TMPDIR": str(self.folder / name),
        }
        return part

    def _part(
        self,
        name: str,
        command: list[str],
        ready_url: str,
        *,
        ca: Path | None = None,
        token: str | None = None,
    ) -> Part:
        return Part(name, command, self.folder, answers(ready_url, ca=ca, token=token))

    def _serving(self, name: str, hosts: tuple[str, ...]) -> tuple[Path, Path]:
        return self._authority.issue(name, hosts=hosts).write(self._certificates, name)

    # ------------------------------------------------------------------ the objects

    def call(self, method: str, path: str, body: Object | None = None) -> Object:
        """One call of the API as the administrator. Raises urllib.error.HTTPError for an error status."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token_of('admin')}", "Content-Type": "application/json"},
        )
        context = ssl.create_default_context(cafile=str(self.ca))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=30) as answer:
            return dict(json.load(answer))

    def add_nodes(self, names: Iterable[str], *, gpus: int = 8, labels: dict[str, str] | None = None) -> None:
        """Create nodes that kwok plays, each with 64 CPUs, 256 GiB and ``gpus`` GPUs."""
        room = {"cpu": "64", "memory": "256Gi", "pods": "200", "nvidia.com/gpu": str(gpus)}
        for name in names:
            metadata = {
                "name": name,
                "labels": {PLAYED_NODES: "true", "kubernetes.io/hostname": name} | (labels or {}),
            }
            status = {"allocatable": room, "capacity": room}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
            self.call("POST", "/api/v1/nodes", node)

    def add_namespace(self, name: str) -> None:
        """Create a namespace, unless it is there."""
        try:
            metadata = {"name": name}
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            self.call("POST", "/api/v1/namespaces", body)
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise

    def _install_objects(self) -> None:
        for name in ("default", OPERATOR_NAMESPACE, *(spec.namespace for spec in self.operators)):
            self.add_namespace(name)
        wanted = {f"kubeflow.org_{kind}s.yaml" for kind in JOB_KINDS}
        folder = module_of("training-operator").file("crds")
        files = sorted(path for path in folder.iterdir() if path.name in wanted)
        files.append(module_of("gang-scheduler").file("coscheduling") / "crd.yaml")
        for path in files:
            for document in yaml.safe_load_all(path.read_text()):
                self.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", document)

    def _install_webhook(self, certificate: bytes, key: bytes, port: int) -> None:
        """Register the operator's webhook by its address on loopback, in the operators' namespaces alone.

        The operator keeps certificates that are valid for the name it expects and were signed by an authority of the
        name it expects; ours are valid for 127.0.0.1 as well, so that no name has to be resolved.
        """
        data = {
            "ca.crt": self._authority.pair.certificate,
            "ca.key": self._authority.pair.key,
            "tls.crt": certificate,
            "tls.key": key,
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "training-operator-webhook-cert"},
            "data": {name: _base64(value) for name, value in data.items()},
        }
        self.call("POST", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets", secret)
        shipped = module_of("training-operator").file("webhook") / "manifests.yaml"
        configuration = yaml.safe_load(shipped.read_text())
        configuration["metadata"]["name"] = WEBHOOK_NAME
        namespaces = [spec.namespace for spec in self.operators]
        expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}
        kept = []
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            if path.rsplit("-", 1)[1] in JOB_KINDS:
                webhook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
                webhook["clientConfig"]["caBundle"] = _base64(self.ca.read_bytes())
                webhook["namespaceSelector"] = {"matchExpressions": [expression]}
                kept.append(webhook)
        configuration["webhooks"] = kept
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        self.call("POST", path, configuration)


def token_of(user: str) -> str:
    """The bearer token of one of USERS."""
    return f"{user}-token"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
