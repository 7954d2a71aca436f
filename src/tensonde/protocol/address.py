"""Where a hub is, and its token: as said in the environment, or noted by a hub of the same user on this machine."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, quote, urlencode, urlsplit, urlunsplit

from tensonde.errors import UsageError

HUB, TOKEN = "TENSONDE_HUB", "TENSONDE_HUB_TOKEN"


@dataclass(frozen=True, slots=True)
class Address:
    """`url` is http or https, without a path. `pin` is the fingerprint of the hub's certificate, where it is trusted by that."""

    url: str
    token: str
    pin: str = ""

    @property
    def link(self) -> str:
        """For a browser, and for TENSONDE_HUB."""
        return f"{self.url}/?{urlencode({'token': self.token} | ({'pin': self.pin} if self.pin else {}))}"

    def link_to(self, run: str) -> str:
        """For a browser that shall open at this run."""
        return f"{self.link}#/run/{quote(run, safe='')}"

    @property
    def socket(self) -> str:
        return "ws" + self.url.removeprefix("http")

    @staticmethod
    def parse(text: str, token: str = "") -> Address:
        """`http://127.0.0.1:8000/?token=T`, also without the scheme; raises UsageError."""
        whole = text if "//" in text else f"http://{text}"
        try:
            parts = urlsplit(whole)
            port = parts.port
        except ValueError:
            raise UsageError(f"{text!r} is no address of a hub; give the URL that `tensonde ui` printed.") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{text!r} is no address of a hub; give the URL that `tensonde ui` printed.")
        query = parse_qs(parts.query)
        given = query.get("token", [""])[0] or token
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return Address(
            urlunsplit((parts.scheme, host + (f":{port}" if port else ""), "", "", "")),
            given,
            query.get("pin", [""])[0],
        )


def from_environment(environment: Mapping[str, str] = os.environ) -> Address | None:
    """TENSONDE_HUB; or MindSpore's ENABLE_MS_DEBUGGER=1 with MS_DEBUGGER_HOST and MS_DEBUGGER_PORT. None where nothing is said."""
    token = environment.get(TOKEN, "")
    given = environment.get(HUB)
    if given:
        return _with_noted_token(Address.parse(given, token))
    if environment.get("ENABLE_MS_DEBUGGER", "").lower() in ("1", "true"):
        host, port = environment.get("MS_DEBUGGER_HOST", "localhost"), environment.get("MS_DEBUGGER_PORT", "50051")
        return _with_noted_token(Address.parse(f"http://{host}:{port}", token))
    return None


def _with_noted_token(address: Address) -> Address:
    """A hub on this machine that this user started has left its token."""
    if address.token:
        return address
    noted = read_note()
    same = noted is not None and urlsplit(noted.url).port == urlsplit(address.url).port
    return Address(address.url, noted.token, noted.pin) if same and noted is not None else address


def note_path() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime) / "tensonde" / "hub.json"
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "tensonde" / "hub.json"


def write_note(address: Address) -> None:
    """For trainings and terminals of this user; nobody else can read it. Does nothing where it cannot be written."""
    path = note_path()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_name(f"hub.json.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"url": address.url, "token": address.token, "pin": address.pin, "pid": os.getpid()}, file)
        os.replace(draft, path)


def read_note() -> Address | None:
    """The hub that this user started last, if its process is still there."""
    try:
        path = note_path()
        if path.stat().st_uid != os.getuid():
            return None
        noted = json.loads(path.read_text())
        os.kill(int(noted["pid"]), 0)
        return Address(str(noted["url"]), str(noted["token"]), str(noted.get("pin", "")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_note(address: Address) -> None:
    """If it is still about this hub."""
    if read_note() == address:
        with contextlib.suppress(OSError):
            note_path().unlink()
