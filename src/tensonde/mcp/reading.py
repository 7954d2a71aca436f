"""Tools that read runs, recorded or live. They change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tensonde.errors import UsageError
from tensonde.mcp import commands, hints
from tensonde.mcp.answer import Answer
from tensonde.mcp.bench import Bench, FoundRun
from tensonde.protocol.client import HubError
from tensonde.store.bundles import bundles_in

Json = dict[str, Any]
Run = Annotated[str, Field(description="a run's name, or how it begins, or its id; empty: the newest")]
Rank = Annotated[int | None, Field(ge=0, description="default: the first")]
Step = Annotated[int | None, Field(ge=0, description="default: the latest")]
First = Annotated[int, Field(ge=0, description="how many to pass over")]
ROWS = 50
EXCERPTS = 2
SCALARS = 12
_VERDICTS = {
    "equivalent": ("They are equivalent as far as was recorded.",),
    "incomparable": ("They cannot be compared; `notes` says why.",),
}


class Reading:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def list_runs(self, first: First = 0, count: Annotated[int, Field(ge=1, le=200)] = 10) -> Answer:
        """The runs of this folder and the trainings that are live, newest first."""
        runs = [run for _, run in self._bench.runs()]
        shown = [_brief(run) for run in runs[first : first + count]]
        live = next((run for run in shown if run["state"] == "live"), None)
        more = [f"What is wrong: findings(run={shown[0]['name']!r})."] if shown else ["Record one: run_script."]
        if live is not None:
            more.append(f"A live one: control(run={live['name']!r}, action='pause').")
        if first + count < len(runs):
            more.append(f"Older ones: list_runs(first={first + count}).")
        return Answer("runs", shown, more, {"total": len(runs)})

    def findings(self, run: Run = "", first: First = 0, count: Annotated[int, Field(ge=1, le=100)] = 5) -> Answer:
        """What is wrong with a training, the most likely root cause first, with evidence, the line to change and lines around it."""
        found = self._bench.find_run(run)
        report = kept_report(found.path) or commands.document(self._bench.folder, "diagnose", str(found.path), "--json")
        every = report["findings"]
        shown = every[first : first + count]
        document = {key: report[key] for key in ("tensonde", "schema", "run", "exit", "steps") if key in report}
        more = hints.after_report(found.name, {**report, "findings": every[first:]}, bundles=_has_bundle(found))
        if first + count < len(every):
            more.append(f"The other findings: findings(run={found.name!r}, first={first + count}).")
        beside: Json = {"run": found.name, "findings_in_all": len(every)}
        excerpts = [
            lines for finding in shown[:EXCERPTS] if (lines := self._lines(found, finding.get("source"))) is not None
        ]
        return Answer("report", {**document, "findings": shown}, more, {**beside, "excerpts": excerpts})

    def show_run(self, run: Run = "", steps: Annotated[str, Field(description="such as 10-20")] = "") -> Answer:
        """What a run recorded: its numbers per step, and its sites, those with NaN or Inf first in the order that they went bad."""
        found = self._bench.find_run(run)
        words = ["show", str(found.path), "--json", "--limit", "12", *(["--steps", steps] if steps else [])]
        document = commands.document(self._bench.folder, *words)
        document = {key: value for key, value in document.items() if key not in ("overhead", "coverage")}
        document["scalars"] = {name: _thinned(points) for name, points in document["scalars"].items()}
        site = document["sites"][0]["site"] if document["sites"] else "loss:value"
        return Answer(
            "run",
            document,
            [f"The history of a site: digests(run={found.name!r}, site={site!r})."],
            {"run": found.name},
        )

    def digests(
        self,
        site: Annotated[
            str,
            Field(
                description="an address such as 'fc1:out', 'fc1.weight:grad', 'loss:value'; or a pattern such as '**:grad' for the latest of each"
            ),
        ],
        run: Run = "",
        fields: Annotated[
            str, Field(description="of min, max, mean, std, norm, absmax, nan, pos_inf, neg_inf, zero, count, ...")
        ] = "norm,absmax,nan",
        first_step: Annotated[int | None, Field(ge=0)] = None,
        last_step: Annotated[int | None, Field(ge=0)] = None,
        points: Annotated[int, Field(ge=1, le=2000)] = 24,
        rank: Rank = None,
    ) -> Answer:
        """A site's statistics over the steps, thinned without losing extremes; of a pattern, the latest statistics of each site that matches."""
        found = self._bench.find(run, rank)
        if any(sign in site for sign in "*?{"):
            latest = found.remote.get("latest", site=site, step=last_step, limit=points)
            wanted = [name.strip() for name in fields.split(",")]
            rows = [
                {**row, "digest": {name: row["digest"][name] for name in wanted if name in row["digest"]}}
                for row in latest
            ]
            return Answer("latest", rows, [f"Over the steps: digests(run={found.name!r}, site='ADDRESS')."])
        query: Json = {"site": site, "fields": fields, "from_": first_step, "to": last_step, "points": points}
        document = found.remote.get("digests", **query)
        more = [f"All steps: digests(run={found.name!r}, site={site!r}, points=2000)."] if document["thinned"] else []
        more.append(f"What makes it: node(run={found.name!r}, name={site.rpartition(':')[0] or site!r}).")
        return Answer("digests", document, more)

    def query(
        self,
        sql: Annotated[
            str,
            Field(
                description="one SELECT over digests, sites, scalars, hits, findings, events; DESCRIBE digests lists columns",
                max_length=20_000,
            ),
        ],
        run: Run = "",
        beside: Annotated[list[str] | None, Field(description="more runs; the column `run` tells them apart")] = None,
        first: First = 0,
    ) -> Answer:
        """SQL (DuckDB's) over what runs recorded. Reads only; files, settings and extensions are out of reach."""
        paths = [str(self._bench.find_run(one).path) for one in (run, *(beside or []))]
        rows = commands.document(self._bench.folder, "query", *paths, sql, "--json")
        shown = rows[first : first + ROWS]
        more = [f"More rows: the same with first={first + ROWS}."] if first + ROWS < len(rows) else []
        return Answer(
            "rows", shown, [*more, "Columns of a view: query(sql='DESCRIBE digests')."], {"rows_in_all": len(rows)}
        )

    def trace(
        self,
        run: Run = "",
        source: Annotated[
            str,
            Field(
                description="which traced step, as an earlier answer lists them; default: the one that went wrong, else the first"
            ),
        ] = "",
        phase: Annotated[str, Field(description="forward, backward or all")] = "forward",
        module: Annotated[str, Field(description="only ops of this module")] = "",
        first: First = 0,
        count: Annotated[int, Field(ge=1, le=1000)] = 30,
        rank: Rank = None,
    ) -> Answer:
        """The ops of a traced step in the order that they ran, with their lines and whether their outputs were finite."""
        found = self._bench.find(run, rank)
        graph = found.remote.get("graph", source=source or None, phase=phase)
        rows = _rows(graph, module)
        shown = rows[first : first + count]
        bad = next((row for row in rows if row["health"] == "bad"), None)
        more = (
            [f"The first op with a bad output: node(run={found.name!r}, name={bad['name']!r})."]
            if bad is not None
            else []
        )
        if first + count < len(rows):
            more.append(f"Later ops: the same with first={first + count}.")
        document = {"source": graph["source"], "step": graph["step"], "sources": graph["sources"], "ops": shown}
        return Answer("trace", document, more or ["Of one op: node(name=...)."], {"ops_in_all": len(rows)})

    def node(
        self,
        name: Annotated[str, Field(description="an op such as 'fc1/linear#0', a module, a parameter or 'loss'")],
        run: Run = "",
        step: Step = None,
        rank: Rank = None,
    ) -> Answer:
        """One op, module or parameter: what went in, what came out, with statistics, and which ops are before and after it."""
        found = self._bench.find(run, rank)
        document = _for_a_reader(found.remote.get("node", name=name, step=step))
        more = [f"Before it: node(run={found.name!r}, name={before!r})." for before in document["before"][:2]]
        return Answer("node", document, more or [f"Its history: digests(run={found.name!r}, site={name + ':out'!r})."])

    def tensors(
        self,
        run: Run = "",
        rank: Rank = None,
        contains: Annotated[str, Field(description="only addresses with this in them")] = "",
    ) -> Answer:
        """Which tensors have values at hand: kept ones, and at a stop of a live training all that are alive."""
        found = self._bench.find(run, rank)
        document = [one for one in found.remote.get("tensors") if contains in one["address"]]
        more = (
            [f"A part of one: tensor(run={found.name!r}, address={document[0]['address']!r})."]
            if document
            else [
                "Nothing is kept. Values are at hand at a stop: start_script, then control; or of the step that went wrong: replay."
            ]
        )
        return Answer("tensors", document, more, {"in_all": len(document)})

    def tensor(
        self,
        address: Annotated[str, Field(description="as tensors lists it, such as 'fc1.weight:value'")],
        run: Run = "",
        step: Step = None,
        index: Annotated[str, Field(description="such as '0, :, :' for a tensor of more than two dimensions")] = "",
        rows: Annotated[str, Field(description="such as 0:8")] = "0:8",
        cols: Annotated[str, Field(description="such as 0:8")] = "0:8",
        rank: Rank = None,
    ) -> Answer:
        """A slice of a tensor's values, with the statistics of all of it. At most 64 by 64 values."""
        for what, part in (("rows", rows), ("cols", cols)):
            _check_slice(what, part)
        found = self._bench.find(run, rank)
        document = found.remote.get("tensor", address=address, step=step, index=index, rows=rows, cols=cols)
        return Answer("tile", document, ["Another part: the same with other rows, cols or index."])

    def source(
        self,
        file: str,
        line: Annotated[int, Field(ge=1)],
        run: Run = "",
        around: Annotated[int, Field(ge=0, le=200)] = 12,
    ) -> Answer:
        """Lines of a source file of the run."""
        found = self._bench.find(run)
        return Answer("excerpt", found.remote.get("source", file=file, line=line, around=around))

    def compare_runs(
        self, one: Annotated[str, Field(description="the run that is right, or older")], other: str
    ) -> Answer:
        """Where two recorded trainings part and why: data, initial weights, forward, backward or optimizer, and the first site that differs."""
        a, b = self._bench.find_run(one), self._bench.find_run(other)
        document = commands.document(self._bench.folder, "compare", str(a.path), str(b.path), "--json")
        first = document.get("first") or {}
        more = list(_VERDICTS.get(document["verdict"], ()))
        for found, key in ((a, "site"), (b, "other_site")):
            if first.get(key):
                more.append(
                    f"There: node(run={found.name!r}, name={str(first[key]).rpartition(':')[0] or first[key]!r})."
                )
        return Answer("verdict", document, more)

    def report_of(self, run: str) -> str:
        """A resource: the report of a run, whole."""
        found = self._bench.find_run(run)
        report = kept_report(found.path) or commands.document(self._bench.folder, "diagnose", str(found.path), "--json")
        return json.dumps(report, indent=1)

    def summary_of(self, run: str) -> str:
        """A resource: what `tensonde show RUN --json` prints."""
        found = self._bench.find_run(run)
        return json.dumps(commands.document(self._bench.folder, "show", str(found.path), "--json"), indent=1)

    def runs_text(self) -> str:
        """A resource: the list of runs."""
        return json.dumps([run for _, run in self._bench.runs()], indent=1)

    def _lines(self, found: FoundRun, source: Json | None) -> Json | None:
        if not source or not found.run["ranks"]:
            return None
        try:
            place = found.client.place(found.run["id"], found.run["ranks"][0]["name"])
            lines: Json = place.get("source", file=source["file"], line=source["line"], around=3)
        except HubError:  # in a library, or on another machine
            return None
        return lines


def kept_report(path: Path) -> Json | None:
    """The report that `tensonde run` has left in the recording."""
    try:
        found = json.loads((path / "report.json").read_text())
        return found if isinstance(found, dict) and isinstance(found.get("findings"), list) else None
    except (OSError, ValueError):
        return None


def _brief(run: Json) -> Json:
    """Without what only the browser wants."""
    ranks = [
        {key: rank[key] for key in ("rank", "state", "step", "findings", "hits", "stop", "connected")}
        for rank in run["ranks"]
    ]
    return {**{key: run[key] for key in ("id", "name", "script", "framework", "started", "state")}, "ranks": ranks}


def _has_bundle(found: FoundRun) -> bool:
    try:
        return any(bundles_in(folder) for folder in sorted(found.path.glob("rank*")))
    except OSError:
        return False


def _thinned(points: list[Any]) -> list[Any]:
    """The first, the last and some between; all steps are in `digests` and `query`."""
    if len(points) <= SCALARS:
        return points
    return [points[round(k * (len(points) - 1) / (SCALARS - 1))] for k in range(SCALARS)]


def _for_a_reader(node: Json) -> Json:
    """Without sketches, which are for comparing two runs, and without the neighbours' statistics: those of an input are with the input."""
    for port in (*node["inputs"], *node["outputs"], *node["parameters"]):
        if port["digest"]:
            port["digest"] = {key: value for key, value in port["digest"].items() if not key.startswith("sketch.")}
    return {key: value for key, value in node.items() if key != "around"}


def _rows(graph: Json, module: str) -> list[Json]:
    nodes, scopes = graph["nodes"], graph["scopes"]["name"]
    rows = []
    for k, name in enumerate(nodes["name"]):
        scope = nodes["scope"][k]
        where = scopes[scope] if scope >= 0 else ""
        if nodes["kind"][k] in ("input", "parameter") or (
            module and where != module and not where.startswith(f"{module}.")
        ):
            continue
        rows.append({"name": name, "type": nodes["type"][k], "source": nodes["source"][k], "phase": nodes["phase"][k], "health": nodes["health"][k]})  # fmt: skip
    return rows


def _check_slice(what: str, text: str) -> None:
    begin, colon, end = text.partition(":")
    if not (colon and begin.strip().isdecimal() and end.strip().isdecimal()):
        raise UsageError(f"{what} is {text!r}; write it as 0:8.")
    if not 0 < int(end) - int(begin) <= 64:
        raise UsageError(f"{what} {text} are {int(end) - int(begin)}; ask for 1 to 64 at a time.")
