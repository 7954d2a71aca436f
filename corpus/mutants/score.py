"""Runs bases and mutants under `tensonde run` and prints what was named: `python corpus/mutants/score.py [--only WORD]`."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from build import HERE, Mutant, mutants

FIRST = 3
"""How many errors and warnings are looked at."""


def run(name: str, text: str, limit: float) -> dict[str, Any]:
    """The report of the script, run in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        (Path(scratch) / "train.py").write_text(text)
        command = [sys.executable, "-m", "tensonde", "run", "--report", "report.json", "train.py"]
        began = time.perf_counter()
        try:
            done = subprocess.run(
                command,
                cwd=scratch,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                timeout=limit,
            )
            report = json.loads((Path(scratch) / "report.json").read_text())
        except (subprocess.TimeoutExpired, OSError, ValueError) as problem:
            return {"name": name, "problem": str(problem)[:200], "findings": [], "seconds": time.perf_counter() - began}
    final = [line for line in done.stdout.splitlines() if line.startswith("final ")]
    return {
        "name": name,
        "findings": report["findings"],
        "final": final[-1] if final else "",
        "seconds": time.perf_counter() - began,
    }


def loud(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in row["findings"] if f["severity"] in ("error", "warning")]


def verdict(row: dict[str, Any], mutant: Mutant) -> tuple[str, int | None]:
    """NAMED, DETECTED, SILENT or ERROR, and the place of the finding that named it."""
    if row.get("problem"):
        return "ERROR", None
    modules = [name for name in re.split(r"[\s,]+", mutant.spec["module"]) if name]
    for rank, finding in enumerate(loud(row)[:FIRST], 1):
        source = finding.get("source") or {}
        site = str(finding.get("site") or "").split(":")[0].split("/")[0]
        here = (
            os.path.basename(str(source.get("file", "train.py"))) == "train.py" and source.get("line") in mutant.lines
        )
        if here or any(re.match(re.escape(m).replace(r"\*", r"[^.]+") + r"(\.|$)", site) for m in modules if site):
            return "NAMED", rank
    return ("DETECTED" if loud(row) else "SILENT"), None


def show(row: dict[str, Any], mutant: Mutant | None) -> None:
    if mutant is None:
        told = row.get("problem") or ("FALSE ALARM" if loud(row) else "clean")
        print(f"{told:12} {row['name']:42} {row['seconds']:4.0f}s {row.get('final')}")
    else:
        what, rank = verdict(row, mutant)
        kind, subject = mutant.spec["kind"], mutant.spec["category"]
        print(f"{what:9}{rank or ' '} {row['name']:42} {kind:7} {subject:12} {row['seconds']:4.0f}s {row.get('final')}")
        print(f"          must: {mutant.spec['must']}  lines {mutant.lines} {mutant.spec['module']}")
    for finding in loud(row)[:FIRST]:
        line = (finding.get("source") or {}).get("line")
        print(
            f"          {finding['severity'][0]} {finding['rule']} @{line} {finding.get('site')}: {finding['title'][:200]}"
        )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--only", default="", help="names that hold this word")
    parser.add_argument("--healthy", action="store_true", help="bases only")
    parser.add_argument("--out", type=Path, help="reports as JSON")
    args = parser.parse_args()
    known = mutants()
    texts = {f"base:{path.stem}": path.read_text() for path in sorted((HERE / "bases").glob("*.py"))}
    if not args.healthy:
        texts |= {name: mutant.text for name, mutant in known.items()}
    texts = {name: text for name, text in texts.items() if args.only in name}
    rows = []
    with ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(lambda item: run(*item, args.timeout), texts.items()):
            rows.append(row)
            show(row, known.get(row["name"]))
    if args.out:
        args.out.write_text(json.dumps(rows))
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if (mutant := known.get(row["name"])) is not None:
            for key in (mutant.spec["category"], "kind " + mutant.spec["kind"], "all"):
                table[key][verdict(row, mutant)[0]] += 1
    print(f"\n{'':18}{'n':>5}{'named':>7}{'detected':>10}{'silent':>8}{'error':>7}")
    for key, counts in sorted(table.items()):
        numbers = "".join(f"{counts[what]:{width}}" for what, width in (("DETECTED", 10), ("SILENT", 8), ("ERROR", 7)))
        print(f"{key:18}{counts.total():5}{counts['NAMED']:7}{numbers}   {counts['NAMED'] / counts.total():.0%}")
    alarms = [row["name"] for row in rows if row["name"] not in known and loud(row)]
    print(f"false alarms on bases: {len(alarms)} {' '.join(alarms)}")
    sys.exit(1 if alarms else 0)


if __name__ == "__main__":
    main()
