"""`tensonde attach`: the terminal debugger on a live session, over a hub."""

from __future__ import annotations

import time
from typing import Any

import click

from tensonde.cli.show.echo import echo
from tensonde.errors import UsageError
from tensonde.protocol.address import Address, from_environment, read_note
from tensonde.protocol.client import Client, HubError, Live, Remote

PROMPT = "(tensonde) "
AGAIN_SECONDS = 2.0


@click.command()
@click.option("--run", "run", metavar="RUN", help="Which run: its id, its name, or the beginning of one.")
@click.option("--rank", "rank", metavar="RANK", help="Which of its ranks (default: the first).")
@click.option("--list", "listing", is_flag=True, help="Only list the live trainings.")
@click.argument("url", required=False)
def attach(url: str | None, run: str | None, rank: str | None, listing: bool) -> None:
    """Open the terminal debugger on a training that is connected to a hub (by default, the hub you started).

    \b
    tensonde attach
    tensonde attach 'http://127.0.0.1:8000/?token=...'
    echo 'info; continue' | tensonde attach
    """
    client = Client(find_hub(url))
    places = live_places(client)
    if listing:
        for found, state in places:
            echo(f"{found['id']}  {found['name']}  {state['name']}  {state['state']} at step {state['step']}")
        if not places:
            echo("no training is connected", err=True)
        return
    chosen, state = choose(places, run, rank)
    with client.live((chosen["id"], state["name"])) as live:
        Conversation(client.place(chosen["id"], state["name"]), live).hold()


def find_hub(url: str | None) -> Address:
    """The one given; else that of TENSONDE_HUB; else the one that this user started last."""
    if url:
        given = Address.parse(url)
        noted = read_note()
        return given if given.token or noted is None or noted.url != given.url else noted
    found = from_environment() or read_note()
    if found is None:
        raise UsageError(
            "no hub is known; give its URL, or start one with `tensonde ui`, or a training with `tensonde run --ui train.py`."
        )
    return found


Place = tuple[dict[str, Any], dict[str, Any]]


def live_places(client: Client) -> list[Place]:
    return [
        (run, rank)
        for run in client.runs()
        for rank in run["ranks"]
        if rank["connected"] and rank["state"] in ("running", "stopped")
    ]


def choose(places: list[Place], run: str | None, rank: str | None) -> Place:
    if run is not None:
        places = [place for place in places if place[0]["id"] == run or place[0]["name"].startswith(run)]
    if rank is not None:
        places = [place for place in places if place[1]["name"] == rank or str(place[1]["rank"]) == rank]
    if not places:
        raise UsageError(
            "no such training is connected to this hub; `tensonde run --ui train.py` starts one, `tensonde attach --list` shows what is there."
        )
    names = list(dict.fromkeys(place[0]["name"] for place in places))
    if len(names) > 1:
        raise UsageError(f"{len(names)} trainings are connected: {', '.join(names)}; choose one with --run.")
    return places[0]


class Conversation:
    """Waits for stops, and passes on what is typed at them."""

    def __init__(self, place: Remote, live: Live) -> None:
        from tensonde.debugger.terminal import open_terminal

        self.place, self.live = place, live
        self.terminal = open_terminal(self._complete)
        self._last = ""
        self._waiting = ""
        self._interrupted = float("-inf")

    def hold(self) -> None:
        from tensonde.debugger.ranks import HELP

        state = self.place.state()
        self.terminal.line(
            (f"● {self.place.run}/{self.place.rank}", "title"), f"  {state['state']} at step {state['step']}"
        )
        if (state.get("together") or {}).get("world", 1) > 1:
            self.terminal.line((HELP, "dim"))
        stopped = state["state"] == "stopped"
        if not stopped and not self.terminal.interactive:
            self.place.control("pause")  # what comes from a file wants to be run
        while True:
            if not stopped and not self._wait():
                return
            if not self._at_stop():
                return
            stopped = False

    def _wait(self) -> bool:
        """Until the training stops; False when it is over, or the user leaves."""
        if self.terminal.interactive:
            self.terminal.line(("running; Ctrl-C pauses, twice leaves", "dim"))
        while True:
            try:
                message = self.live.receive(0.5)
            except TimeoutError:
                continue
            except KeyboardInterrupt:
                now = time.monotonic()
                if not self.terminal.interactive or now - self._interrupted < AGAIN_SECONDS:
                    self.terminal.text("left; the training goes on")
                    return False
                self._interrupted = now
                self.terminal.text("pausing at the end of the step; Ctrl-C again within 2 seconds leaves")
                self.place.control("pause")
                continue
            kind = message["type"]
            if message.get("rank") not in (None, self.place.rank):
                continue  # of a rank that was looked at before
            if kind == "hit":
                hit = message["hit"]
                self.terminal.line(
                    ("hit: ", "bad"), (hit["site"], "site"), f" {hit['condition']} at step {hit['step']}"
                )
            elif kind == "stop":
                return True
            elif kind == "state":
                self._tell_waiting(message["state"])
                state = message["state"]["state"]
                if state not in ("running", "stopped"):
                    self.terminal.text(
                        "the training is gone" if state in ("killed", "lost") else "the training is over"
                    )
                    return False

    def _at_stop(self) -> bool:
        """The prompt, until the training runs on; False when the user leaves."""
        line, prompt = "", None
        while True:
            try:
                answer = self.place.command(line)
            except HubError as problem:
                if problem.status == 409:  # somebody else let it run on
                    if line:
                        self.terminal.text(str(problem))
                    return True
                if problem.status == 0:
                    raise
                self.terminal.problem(str(problem))
                answer = {"output": [], "resumed": False, "prompt": None}
            for pieces in answer["output"]:
                self.terminal.line(*((piece["text"], piece["style"]) for piece in pieces))
            if answer["resumed"]:
                return line != "detach"
            prompt = answer["prompt"]
            read = self._read(prompt)
            while read is not None and prompt is None and self._about_ranks(read):
                read = self._read(prompt)
            if read is None or (prompt is None and read == "detach" and self._others()):
                self._leave()
                return False
            line = read

    def _tell_waiting(self, state: dict[str, Any]) -> None:
        """Once for each collective."""
        from tensonde.debugger.ranks import waits

        what = ((state.get("together") or {}).get("waiting") or {}).get("what", "")
        if what and what != self._waiting:
            self.terminal.text(
                f"{state['name']} waits {waits(state)}; `tensonde attach --rank N` at a rank that is stopped lets all go on"
            )
        self._waiting = what

    def _about_ranks(self, line: str) -> bool:
        """Commands about several ranks are the hub's, not the training's."""
        from tensonde.debugger.ranks import show_ranks

        word, _, rest = line.partition(" ")
        if word not in ("ranks", "rank", "alone"):
            return False
        try:
            states = next(run["ranks"] for run in self.place.client.runs() if run["id"] == self.place.run)
            if word == "ranks":
                show_ranks(self.terminal, states, self.place.rank)
            elif word == "rank":
                self._look_at(rest.strip(), states)
            else:
                action, _, count = rest.strip().partition(" ")
                self.place.control(action, count=int(count) if count.isdecimal() else 1, alone=True)
                self.terminal.text(f"{self.place.rank} goes on alone")
        except (HubError, StopIteration) as problem:
            self.terminal.problem(str(problem) or "the hub does not know this run any more.")
        return True

    def _look_at(self, wanted: str, states: list[dict[str, Any]]) -> None:
        found = next((one for one in states if wanted in (one["name"], str(one["rank"]))), None)
        if found is None or found["state"] != "stopped":
            names = ", ".join(one["name"] for one in states if one["state"] == "stopped")
            self.terminal.problem(f"there is no rank {wanted!r} that is stopped; stopped are {names}.")
            return
        self.place = self.place.client.place(self.place.run, found["name"])
        self.live.subscribe(self.place.run, self.place.rank)
        self.terminal.line(
            (f"● {self.place.rank}", "title"), f"  stopped at step {found['step']}; `where` shows its place"
        )

    def _leave(self) -> None:
        """The last one who leaves lets the training go on."""
        if self._others():
            self.terminal.text("left; the training stays stopped, as somebody else looks at it")
        else:
            self.place.control("continue")
            self.terminal.text("left; the training goes on")

    def _others(self) -> bool:
        """Somebody else looks at this stop, in a browser or a terminal: breakpoints and going on are theirs."""
        return int(self.place.state()["onlookers"]) > 1

    def _read(self, prompt: str | None) -> str | None:
        """The next line; the last one again for an empty one at Tensonde's own prompt; None at the end of input."""
        while True:
            try:
                line = self.terminal.read(prompt if prompt is not None else PROMPT).strip()
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not self.terminal.interactive:
                    return None
                self.terminal.text("")
                continue
            if prompt is not None:
                return line
            if line.startswith("#"):
                continue
            if line:
                self._last = line
            if line or self._last:
                return line or self._last

    def _complete(self, text: str) -> tuple[int, list[str]]:
        try:
            found = self.place.complete(text)
        except HubError:
            return 0, []
        return len(text) - int(found["start"]), list(found["options"])
