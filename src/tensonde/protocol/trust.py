"""How a hub's certificate is trusted: by the system's authorities, or by its fingerprint, which stands in the hub's address.

A pinned certificate is fetched first, without sending anything, and compared; then it is the only one that the connection accepts. So the
token never goes to somebody else.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from tensonde.protocol.address import Address

SECONDS = 5.0


class WrongCertificate(OSError):
    """What answers has another certificate than the address says."""


def fingerprint(certificate: bytes) -> str:
    """Of a certificate in DER: SHA-256, in hexadecimal digits."""
    return hashlib.sha256(certificate).hexdigest()


def fingerprint_of_file(path: Path) -> str:
    """Of the first certificate in a PEM file."""
    first = path.read_text().partition("-----END CERTIFICATE-----")
    return fingerprint(ssl.PEM_cert_to_DER_cert(first[0] + first[1]))


def context_for(address: Address) -> ssl.SSLContext | None:
    """None for plain HTTP. Raises OSError where nobody answers, WrongCertificate where it is somebody else."""
    if not address.url.startswith("https:"):
        return None
    if not address.pin:
        return ssl.create_default_context()
    certificate = _shown_by(address)
    if fingerprint(certificate) != address.pin.lower().replace(":", ""):
        raise WrongCertificate(
            f"{address.url} shows another certificate ({fingerprint(certificate)}) than its address says; nothing was sent to it."
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the certificate itself is known
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=ssl.DER_cert_to_PEM_cert(certificate))
    return context


def _shown_by(address: Address) -> bytes:
    parts = urlsplit(address.url)
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection((parts.hostname or "", parts.port or 443), SECONDS) as plain,
        anybody.wrap_socket(plain, server_hostname=parts.hostname) as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True) or b""
