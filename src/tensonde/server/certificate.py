"""A certificate of the hub's own, for networks: made once per user, and known to others by its fingerprint."""

from __future__ import annotations

import datetime
import os
import socket
from pathlib import Path

from tensonde.errors import UsageError
from tensonde.protocol.address import note_path

YEARS = 10


def own_certificate() -> tuple[Path, Path]:
    """The files of the certificate and its key. Raises UsageError where they cannot be made."""
    folder = note_path().parent
    certificate, key = folder / "hub.crt", folder / "hub.key"
    if certificate.exists() and key.exists():
        return certificate, key
    try:
        made, secret = _make()
    except ImportError:
        raise UsageError(
            "beyond this machine the hub speaks TLS, and needs `pip install 'tensonde[tls]'` to make a certificate; or give one with --tls-cert and --tls-key."
        ) from None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key.unlink(missing_ok=True)
        with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secret)
        certificate.write_bytes(made)
    except OSError as problem:
        raise UsageError(f"the hub's certificate cannot be written to {folder}: {problem.strerror}.") from None
    return certificate, key


def _make() -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tensonde hub on {socket.gethostname()}"[:64])])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(socket.gethostname()), x509.DNSName("localhost")]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), secret
