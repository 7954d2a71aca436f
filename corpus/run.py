"""Runs the corpus under `tensonde run` and prints what was named and what was a false alarm: `python corpus/run.py
[--only PATTERN]`."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FIRST = 3
"""How many errors and warnings are looked at."""


@dataclass(frozen=True)
class Job:
    name: str
    kind: str  # bug, fixed, healthy
    script: Path
    meta: dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """`rank` is the place of the finding that named the culprit, from 1; `alarms` are findings that there should not
    be."""

    name: str
    kind: str
    named: bool
    rank: int | None
    how: str
    rule: str
    seconds: float
    alarms: tuple[str, ...] = ()
    problem: str = ""
    lines: tuple[int, ...] = ()


def jobs(pattern: str, folder: Path = HERE) -> list[Job]:
    """The scripts of a folder."""
    found = []
    for group in ("bugs", "healthy"):
        for path in sorted((folder / group).iterdir()) if (folder / group).is_dir() else ():
            if not fnmatch.fnmatch(path.name, pattern) or not (path / "train.py").exists():
                continue
            meta_file = path / "meta.json"
            meta = json.loads(meta_file.read_text()) if meta_file.exists() else {}
            if group == "healthy":
                found.append(Job(path.name, "healthy", path / "train.py", meta))
            else:
                found.append(Job(path.name, "bug", path / "train.py", meta))
                if (path / "fixed.py").exists():
                    found.append(Job(path.name, "fixed", path / "fixed.py", meta))
    return found


def run(
    job: Job, limit: float, options: Iterable[str] = (), keep: Path | None = None
) -> tuple[dict[str, Any], float, str]:
    """The report, the seconds it took, and what went wrong with running it. The script runs unmodified, in a folder
    of its own; its recording goes to `keep`/KIND/NAME."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as scratch:
        for source in job.script.parent.iterdir():
            if source.is_file() and source.name not in ("train.py", "fixed.py", "meta.json"):
                shutil.copy(source, scratch)
        shutil.copy(job.script, Path(scratch) / job.script.name)
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "tensonde", "run", "--quiet", "--record", "recording", "--report", str(report)]
        began = time.monotonic()
        environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
        try:
            done = subprocess.run(
                [*command, *options, job.script.name],
                cwd=scratch,
                env=environment,
                capture_output=True,
                text=True,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return {}, time.monotonic() - began, f"took longer than {limit:g} s"
        seconds = time.monotonic() - began
        if keep is not None and (Path(scratch) / "recording").is_dir():
            shutil.copytree(Path(scratch) / "recording", keep / job.kind / job.name, dirs_exist_ok=True)
        if not report.exists():
            return {}, seconds, f"no report; {done.stderr.strip().splitlines()[-1:]}"
        return json.loads(report.read_text()), seconds, ""


def problems(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [finding for finding in report.get("findings", []) if finding["severity"] in ("error", "warning")]


def defect_lines(meta: dict[str, Any]) -> set[int]:
    culprit = meta.get("culprit", {})
    lines = {
        culprit.get("line"),
        culprit.get("manifest_line"),
        meta.get("manifest_line"),
        *(culprit.get("all_defect_lines") or ()),
    }
    return {line for line in lines if isinstance(line, int)}


def names(finding: dict[str, Any], meta: dict[str, Any], script: str) -> str:
    """How a finding names the culprit: "line", "module", or not at all."""
    source = finding.get("source") or {}
    if source and Path(source["file"]).name == script and source["line"] in defect_lines(meta):
        return "line"
    module = module_of(finding.get("site"))
    if module and module in re.findall(r"[\w.]+", str(meta.get("culprit", {}).get("module", ""))):
        return "module"
    return ""


def module_of(site: str | None) -> str:
    """`blocks.1` of `blocks.1:out`, `blocks.1/softmax#0:out` and `blocks.1.weight:grad`."""
    if not site:
        return ""
    name = site.partition(":")[0].partition("/")[0]
    role = site.partition(":")[2]
    if role in ("value", "grad", "update") and name.rpartition(".")[2] in ("weight", "bias"):
        name = name.rpartition(".")[0]
    return name


def judge_bug(job: Job, report: dict[str, Any], seconds: float, problem: str) -> Verdict:
    for rank, finding in enumerate(problems(report)[:FIRST], 1):
        how = names(finding, job.meta, "train.py")
        if how:
            return Verdict(job.name, "bug", True, rank, how, finding["rule"], seconds)
    first = next(iter(problems(report)), None)
    return Verdict(job.name, "bug", False, None, "", first["rule"] if first else "-", seconds, problem=problem)


def judge_quiet(job: Job, report: dict[str, Any], seconds: float, problem: str, bug: Verdict | None) -> Verdict:
    alarms = []
    for finding in problems(report):
        mended = bug is not None and (
            names(finding, job.meta, "fixed.py") == "line" or (bug.named and finding["rule"] == bug.rule)
        )
        if job.kind == "healthy" or mended:
            source = finding.get("source") or {}
            alarms.append(f"{finding['rule']} at line {source.get('line', '?')}: {finding['title'][:100]}")
    return Verdict(job.name, job.kind, False, None, "", "", seconds, tuple(alarms), problem)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names to run, e.g. 'exc_*'")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the verdicts, for a program")
    parser.add_argument("--timeout", type=float, default=120, metavar="SECONDS")
    parser.add_argument("--jobs", type=int, default=2, help="scripts at a time")
    parser.add_argument("--corpus", type=Path, default=HERE, metavar="DIR")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the recordings here, for freeze.py")
    chosen = parser.parse_args(arguments)
    todo = jobs(chosen.only, chosen.corpus)
    if not todo:
        parser.error(f"no script matches {chosen.only!r}")

    def one(job: Job) -> tuple[Job, dict[str, Any], float, str]:
        report, seconds, problem = run(job, chosen.timeout, keep=chosen.keep)
        print(f"{job.kind:<8} {job.name}  {seconds:.1f} s {problem}", file=sys.stderr, flush=True)
        return job, report, seconds, problem

    with ThreadPoolExecutor(chosen.jobs) as pool:
        done = list(pool.map(one, todo))
    verdicts = judge_all(done)
    show(verdicts)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    bugs = [verdict for verdict in verdicts if verdict.kind == "bug"]
    return 0 if all(verdict.named for verdict in bugs) and not any(verdict.alarms for verdict in verdicts) else 1


def judge_all(done: list[tuple[Job, dict[str, Any], float, str]]) -> list[Verdict]:
    bugs = {
        job.name: judge_bug(job, report, seconds, problem)
        for job, report, seconds, problem in done
        if job.kind == "bug"
    }
    rest = [
        judge_quiet(job, report, seconds, problem, bugs.get(job.name) if job.kind == "fixed" else None)
        for job, report, seconds, problem in done
        if job.kind != "bug"
    ]
    return [*bugs.values(), *rest]


def show(verdicts: list[Verdict]) -> None:
    width = max(len(verdict.name) for verdict in verdicts)
    for kind, title in (("bug", "bugs"), ("fixed", "mended"), ("healthy", "healthy")):
        chosen = [verdict for verdict in verdicts if verdict.kind == kind]
        if not chosen:
            continue
        print(f"\n{title:<{width}}  verdict         rank  seconds  rule")
        for verdict in chosen:
            if kind == "bug":
                word = f"named ({verdict.how})" if verdict.named else "MISSED"
            else:
                word = f"{len(verdict.alarms)} FALSE ALARM" if verdict.alarms else "silent"
            rank = verdict.rank if verdict.rank is not None else ""
            print(
                f"{verdict.name:<{width}}  {word:<14}  {rank:>4}  {verdict.seconds:7.1f}"
                f"  {verdict.rule} {verdict.problem}".rstrip()
            )
            for alarm in verdict.alarms[:3]:
                print(f"{'':<{width}}    {alarm}")
    bugs = [verdict for verdict in verdicts if verdict.kind == "bug"]
    alarms = sum(bool(verdict.alarms) for verdict in verdicts)
    named = sum(verdict.named for verdict in bugs)
    share = f" ({100 * named / len(bugs):.0f} %)" if bugs else ""
    print(
        f"\n{named} of {len(bugs)} bugs named{share}, {alarms} scripts with false alarms, "
        f"{sum(v.seconds for v in verdicts):.0f} s of running"
    )


if __name__ == "__main__":
    sys.exit(main())
