"""The hub of `--ui`: one that runs already is joined; else one is started beside the training, and ends with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tensonde.cli.show.echo import echo
from tensonde.protocol.address import Address, from_environment, read_note
from tensonde.protocol.client import Client, HubError


class CompanionHub:
    """`address` is None where no hub could be had: the training runs all the same."""

    def __init__(self, folder: Path) -> None:
        self._own: subprocess.Popen[str] | None = None
        self.address = self._join() or self._start(folder)
        if self.address is not None:
            echo(f"tensonde: the UI is at {self.address.link}", err=True)

    def _join(self) -> Address | None:
        for found in (from_environment(), read_note()):
            if found is not None and _answers(found):
                return found
        return None

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
            echo("tensonde: the hub could not be started; the training runs without the UI.", err=True)
            return None

    def stay(self) -> None:
        """After the training: as long as somebody at the terminal wants to look on."""
        if self._own is None or self.address is None:
            return
        if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
            echo(f"tensonde: the UI stays at {self.address.link}; Ctrl-C ends it", err=True)
            try:
                self._own.wait()
            except KeyboardInterrupt:
                echo("", err=True)
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


def _answers(address: Address) -> bool:
    try:
        Client(address, timeout=2).get("/conditions")
    except HubError:
        return False
    return True
