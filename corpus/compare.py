"""Pairs of scripts under `tensonde compare`: is the place that makes them differ named first, and are equal pairs called so?

python corpus/compare.py [--equal] [NAME...]     --equal: mended twins, and each reference against itself with one thread
python corpus/compare.py --porting PYTHON [NAME...]   PyTorch originals and their MindSpore ports, which PYTHON runs: wrong ones and right ones
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAIRS = Path(__file__).parent / "pairs"
PORTS = Path(__file__).parent / "porting"
ONE_THREAD = "import runpy, sys, torch\ntorch.set_num_threads(1)\nrunpy.run_path({path!r}, run_name='__main__')\n"


@dataclass(frozen=True)
class Judged:
    name: str
    right: bool
    told: str


def expected(pair: Path) -> dict[str, Any]:
    """What a right verdict says: the judgement, and the module (alternatives by |) or the setting that comes first."""
    known = json.loads((PAIRS / "expected.json").read_text()).get(pair.name)
    return dict(known or json.loads((pair / "meta.json").read_text())["expected"])


def compare(one: Path, other: Path, *more: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "tensonde",
        "compare",
        "-q",
        "--json",
        "--run",
        str(one),
        "--run",
        str(other),
        *more,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if not done.stdout:
        return {"verdict": "failed", "judgement": "", "first": None, "settings": [], "notes": [done.stderr[-300:]]}
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == {"equivalent": 0, "divergent": 1, "incomparable": 2}[found["verdict"]]
    return found


def names(verdict: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """The judgement is right, and the first site or the first setting is the one at fault."""
    if verdict["verdict"] != "divergent" or verdict["judgement"] != wanted["judgement"]:
        return False
    site = verdict["first"]["site"].rpartition(":")[0]
    parts = {site, site.partition("/")[0], re.sub(r"#\d+$", "", site.partition("/")[2])}
    outer = site.partition("/")[0]
    while "." in outer:
        outer = outer.rpartition(".")[0]
        parts.add(outer)
    module, setting = wanted.get("module"), wanted.get("setting")
    if module is None and setting is None:  # the judgement is all there is to say
        return True
    by_module = module is not None and any(
        alternative in parts or any(part.endswith(f".{alternative}") for part in parts)
        for alternative in module.split("|")
    )
    first = verdict["settings"][0]["what"] if verdict["settings"] else ""
    by_setting = setting is not None and any(word in first for word in setting.split("|"))
    return by_module or by_setting


def judge(pair: Path) -> Judged:
    verdict = compare(pair / "train.py", pair / "ref.py")
    first = verdict["first"] or {}
    settings = [f"{s['what']}: {s['a']} / {s['b']}" for s in verdict["settings"][:1]]
    told = f"{verdict['verdict']} {verdict['judgement']} {first.get('site')} {' '.join(settings)} {' '.join(verdict['notes'][:1])}"
    return Judged(pair.name, names(verdict, expected(pair)), told)


def judge_equal(pair: Path) -> list[Judged]:
    found = []
    if (pair / "fixed.py").exists():
        verdict = compare(pair / "fixed.py", pair / "ref.py")
        found.append(Judged(f"{pair.name} fixed", verdict["verdict"] == "equivalent", _told(verdict)))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "one_thread.py"
        script.write_text(ONE_THREAD.format(path=str(pair / "ref.py")))
        verdict = compare(pair / "ref.py", script)
        found.append(Judged(f"{pair.name} one thread", verdict["verdict"] == "equivalent", _told(verdict)))
    return found


def judge_port(pair: Path, python: str) -> list[Judged]:
    """The original comes first: names of sites are its own."""
    more = ("--python-b", python, "--steps", "12")
    wrong = compare(pair / "ref.py", pair / "port.py", *more)
    right = compare(pair / "ref.py", pair / "fixed.py", *more)
    wanted = json.loads((pair / "meta.json").read_text())["expected"]
    settings = [f"{s['what']}: {s['a']} / {s['b']}" for s in wrong["settings"][:1]]
    told = " ".join(
        [_told(wrong), wrong["judgement"], *settings, *(wrong["notes"][:1] if wrong["verdict"] == "failed" else [])]
    )
    return [
        Judged(pair.name, names(wrong, wanted), f"{told} | {wrong.get('cause', '')[:60]}"),
        Judged(f"{pair.name} fixed", right["verdict"] == "equivalent", " ".join([_told(right), *right["notes"][:1]])),
    ]


def _told(verdict: dict[str, Any]) -> str:
    return verdict["verdict"] + (f" {verdict['first']['site']}" if verdict["first"] else "")


def main(arguments: list[str]) -> int:
    python = arguments.pop(arguments.index("--porting") + 1) if "--porting" in arguments else ""
    wanted = [word for word in arguments if not word.startswith("-")]
    judged: list[Judged] = []
    for pair in sorted((PORTS if python else PAIRS).iterdir()):
        if pair.is_dir() and (not wanted or pair.name in wanted):
            kinds = (
                judge_port(pair, python) if python else judge_equal(pair) if "--equal" in arguments else [judge(pair)]
            )
            for one in kinds:
                judged.append(one)
                print(f"{'ok ' if one.right else 'BAD'} {one.name:36} {one.told}", flush=True)
    right = sum(one.right for one in judged)
    print(f"{right} of {len(judged)} right")
    return int(right < len(judged))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
