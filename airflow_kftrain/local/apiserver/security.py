"""Who may speak to the server, and over what: a token, a certificate authority, a kubeconfig."""

from __future__ import annotations

import datetime as dt
import hmac
import ipaddress
import os
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

USER = "kftrain-local"
_VALID_FOR = dt.timedelta(days=3650)
_NAMES = ("localhost", "kubernetes", "kubernetes.default.svc")


@dataclass(frozen=True)
class Credentials:
    """What a data directory's clients need; the same after every start."""

    token: str
    ca_file: Path
    certificate_file: Path
    key_file: Path

    def server_context(self) -> ssl.SSLContext:
        """TLS 1.2 or newer with the server's certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate_file, self.key_file)
        return context

    def admits(self, authorization: str) -> bool:
        """Whether an ``Authorization`` header holds the token; takes equally long for every wrong one."""
        given = authorization.removeprefix("Bearer ").encode()
        return hmac.compare_digest(given, self.token.encode()) and authorization.startswith("Bearer ")


def credentials(directory: Path, host: str) -> Credentials:
    """Those in ``directory``; made on the first call."""
    token_file = directory / "token"
    made = Credentials("", directory / "ca.crt", directory / "tls.crt", directory / "tls.key")
    if not (made.ca_file.exists() and made.certificate_file.exists() and made.key_file.exists()):
        _write_certificates(made, host)
    if not token_file.exists():
        write_private(token_file, secrets.token_urlsafe(32).encode())
    return Credentials(token_file.read_text().strip(), made.ca_file, made.certificate_file, made.key_file)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)


def kubeconfig(url: str, made: Credentials, namespace: str = "default") -> str:
    """A kubeconfig (JSON, which is YAML) for this server, the CA inside."""
    import base64
    import json

    authority = base64.b64encode(made.ca_file.read_bytes()).decode()
    cluster = {"server": url, "certificate-authority-data": authority}
    context = {"cluster": USER, "user": USER, "namespace": namespace}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": USER, "cluster": cluster}],
        "users": [{"name": USER, "user": {"token": made.token}}],
        "contexts": [{"name": USER, "context": context}],
        "current-context": USER,
    }
    return json.dumps(content, indent=2) + "\n"


def _write_certificates(made: Credentials, host: str) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = dt.datetime.now(dt.UTC)

    def certificate(
        subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + _VALID_FOR)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
            )
        )

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = f"{USER}-ca"
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    authority = (
        certificate(ca_name, ca_key, ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in _NAMES]
    names.append(x509.IPAddress(ipaddress.ip_address(host)))
    server = (
        certificate(USER, key, ca_name, ca_key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # The authority's key is forgotten: nothing else is ever signed with it.
    write_private(made.key_file, private)
    write_private(made.certificate_file, server.public_bytes(serialization.Encoding.PEM))
    write_private(made.ca_file, authority.public_bytes(serialization.Encoding.PEM))
