"""The hub beside a training or a client: one that runs already is joined; else one is started, and ends with its starter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tensonde.protocol.address import Address, from_environment, read_note
from tensonde.protocol.client import Client, HubError


class CompanionHub:
    """`address` is None where no hub could be had: the training runs all the same."""

    def __init__(self, folder: Path, say: Callable[[str], None], *, join: bool = True) -> None:
        """`join`: a hub that the environment names, or that this user has started, is as good."""
        self._own: subprocess.Popen[str] | None = None
        self._say = say
        self.address = (self._join() if join else None) or self._start(folder)

    def _join(self) -> Address | None:
        return next(
            (found for found in (from_environment(), read_note()) if found is not None and answers(found)), None
        )

    def _start(self, folder: Path) -> Address | None:
        """It ends when its standard input does: with this process, however that ends."""
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tensonde", "ui", "--companion", "--no-open", str(folder)]
        self._own = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._own.stdout is not None
        line = self._own.stdout.readline()
        try:
            noted = json.loads(line)
            return Address(noted["url"], noted["token"])
        except (ValueError, KeyError, TypeError):
            self._say("tensonde: the hub could not be started; the training runs without the UI.")
            return None

    def stay(self) -> None:
        """After the training: as long as the person at the terminal wants to look."""
        if self._own is None or self.address is None:
            return
        if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
            self._say(f"tensonde: the UI stays at {self.address.link}; Ctrl-C ends it")
            try:
                self._own.wait()
            except KeyboardInterrupt:
                self._say("")
        self.close()

    def close(self) -> None:
        if self._own is not None:
            assert self._own.stdin is not None
            self._own.stdin.close()
            try:
                self._own.wait(5)
            except subprocess.TimeoutExpired:
                self._own.kill()
            self._own = None


def answers(address: Address) -> bool:
    try:
        Client(address, timeout=2).get("/conditions")
    except HubError:
        return False
    return True
