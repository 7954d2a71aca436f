"""Where a step's instructions go, and a model of what Tensonde costs: `make profile`. Needs valgrind and a C compiler.

    python benchmarks/instructions.py                          chains, from which the model is learnt, then mlp and gpt
    python benchmarks/instructions.py --models mlp,resnet,gpt
    python benchmarks/instructions.py --first mlp,gpt          the first step, which is traced, over a bare one

Times lie on a busy machine; the number of instructions of a step does not. Every training runs bare, with the sentinel (`--budget 0`) and
with everything (`--budget off`), and callgrind counts its steps, in one thread.

The model says that a step costs so many instructions: for being a step, for every call of a module, for every call that is looked at (with the
hook on its gradient), for every row and for every kilobyte that is reduced. These five prices are learnt from chains of small layers by least
squares, and predict the other models, which were not used for it. `share` says whose code the added instructions are: Python's interpreter, torch's,
the digest kernel's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensonde.launch.environment import watched_environment
from tensonde.model.site import Kind, Role
from tensonde.session.options import Options
from tensonde.store.claim import create_run
from tensonde.store.reader import Recording

HERE = Path(__file__).parent
STEPS = 4
CHAINS = (
    "chain 4 0 16 8",
    "chain 40 0 16 8",
    "chain 4 40 16 8",
    "chain 4 0 256 8",
    "chain 4 0 16 4096",
    "chain 20 20 128 512",
)
MODES = {"sentinel": 0.0, "everything": None}
PRICES = ("step", "module call", "module looked at", "row", "kilobyte")


@dataclass(frozen=True)
class Counted:
    instructions: float
    """Per step."""
    owners: Counter[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp,gpt")
    parser.add_argument("--first", default="", metavar="MODELS", help="count the first step of these instead")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if shutil.which("valgrind") is None or shutil.which("cc") is None:
        sys.exit("instructions: needs valgrind and a C compiler (Debian: apt-get install valgrind)")
    with tempfile.TemporaryDirectory() as folder:
        counter = Path(folder) / "counting.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", counter, HERE / "counting.c"], check=True)
        os.environ |= {"TENSONDE_COUNTER": str(counter), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        if chosen.first:
            first_steps(chosen.first.split(","), Path(folder))
        else:
            found = steps([*CHAINS, *chosen.models.split(",")], Path(folder))
            if chosen.json:
                chosen.json.write_text(json.dumps(found, indent=2))


def first_steps(models: list[str], folder: Path) -> None:
    os.environ["TENSONDE_COUNT"] = "first"
    print(
        "| model | bare step, M instructions | first step under Tensonde | on top, in bare steps |\n|---|---|---|---|"
    )
    for model in models:
        bare, _ = count(model, -1.0, folder, 1)
        watched, _ = count(model, 0.05, folder, 1)
        added = watched.instructions - bare.instructions
        print(
            f"| {model} | {bare.instructions / 1e6:.0f} | {watched.instructions / 1e6:.0f} | {added / bare.instructions:.1f} |",
            flush=True,
        )


def steps(models: list[str], folder: Path) -> list[dict[str, float | str]]:
    work: dict[tuple[str, str], np.ndarray] = {}
    costs: dict[tuple[str, str], float] = {}
    bares: dict[str, float] = {}
    shares: dict[tuple[str, str], Counter[str]] = {}
    for model in models:
        print(f"counting {model} ...", file=sys.stderr, flush=True)
        bare, _ = count(model, -1.0, folder)
        bares[model] = bare.instructions
        for mode, budget in MODES.items():
            watched, recording = count(model, budget, folder)
            assert recording is not None
            work[model, mode] = done_in_a_step(recording)
            costs[model, mode] = watched.instructions - bare.instructions
            shares[model, mode] = watched.owners - bare.owners
        work[model, "sentinel"][1] = work[model, "everything"][1]  # as many modules are called, and none is looked at
    learnt = [key for key in work if key[0] in CHAINS]
    prices = learn(np.array([work[key] for key in learnt]), np.array([costs[key] for key in learnt]))
    print("prices, in instructions: " + ", ".join(f"{n} {p:,.0f}" for n, p in zip(PRICES, prices, strict=True)) + "\n")
    print(
        "| model | mode | bare, M | calls | looked at | rows | kB | added, M | predicted, M | ratio | predicted | share of what was added |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    rows: list[dict[str, float | str]] = []
    for (model, mode), amounts in work.items():
        bare_count, added, guessed = bares[model], costs[model, mode], float(amounts @ prices)
        share = shares[model, mode]
        whole = sum(share.values()) or 1
        told = ", ".join(f"{owner} {100 * n / whole:.0f} %" for owner, n in share.most_common(3))
        calls, looked_at, digests, kilobytes = amounts[1:]
        print(
            f"| {model} | {mode} | {bare_count / 1e6:.2f} | {calls:.0f} | {looked_at:.0f} | {digests:.0f} | {kilobytes:.0f} | {added / 1e6:.3f} | "
            f"{guessed / 1e6:.3f} | {1 + added / bare_count:.3f} | {1 + guessed / bare_count:.3f} | {told} |"
        )
        rows.append({"model": model, "mode": mode, "bare": bare_count, "added": added, "predicted": guessed})
    return rows


def learn(work: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Prices that are not negative, so that the relative errors are small."""
    weights = 1 / np.maximum(costs, 1.0)
    matrix, wanted = work * weights[:, None], costs * weights
    free = list(range(work.shape[1]))
    while True:
        prices = np.zeros(work.shape[1])
        prices[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
        if (prices >= 0).all():
            return prices
        free.remove(int(prices.argmin()))


def done_in_a_step(recording: Path) -> np.ndarray:
    """What the prices are paid for, in the last step."""
    rank = Recording.open(recording).ranks[0]
    table = rank.digests()
    steps, sites, counts = (table[name].to_numpy() for name in ("step", "site", "count"))
    last = steps == steps.max()
    known = rank.sites
    looked_at = sum(known[site].kind is Kind.MODULE and known[site].role is Role.OUT for site in sites[last].tolist())
    size = {site: 8 if known[site].dtype.endswith("64") else 4 for site in set(sites.tolist())}
    kilobytes = sum(n * size[site] for site, n in zip(sites[last].tolist(), counts[last].tolist(), strict=True)) / 1024
    return np.array([1.0, looked_at, looked_at, last.sum(), kilobytes])


def count(model: str, budget: float | None, folder: Path, number: int = STEPS) -> tuple[Counted, Path | None]:
    environment, run = dict(os.environ), None
    if budget != -1.0:
        run = create_run(folder, None, {"script": "counted.py", "argv": []})
        options = Options(run=str(run.absolute()), budget=budget, quiet=True)
        environment = watched_environment(options, environment)
    out = folder / f"callgrind.{len(list(folder.iterdir()))}"
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}",
         sys.executable, str(HERE / "counted.py"), model, str(number)],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    dumped = out.with_name(out.name + ".1")
    if done.returncode or not dumped.exists():
        sys.exit(f"instructions: {model} failed under valgrind\n{done.stderr[-1500:]}")
    owners = Counter({owner: n // number for owner, n in by_owner(dumped).items()})
    return Counted(sum(owners.values()), owners), run


def by_owner(dumped: Path) -> Counter[str]:
    """Instructions by the object file that they are in. A line after `calls=` repeats what the callee has counted already."""
    objects: dict[str, str] = {}
    found: Counter[str] = Counter()
    owner, repeated = "other", False
    for line in dumped.open():
        if line.startswith("ob="):
            number, _, path = line[3:].strip().partition(" ")
            if path:
                objects[number] = _owner(path)
            owner = objects.get(number, "other")
        elif line.startswith("calls="):
            repeated = True
        elif re.match(r"[+\-*\d]", line):
            if not repeated:
                found[owner] += int(line.split()[-1])
            repeated = False
        elif line.startswith("cob=") and " " in line:  # names are given where they first appear
            number, _, path = line[4:].strip().partition(" ")
            objects[number] = _owner(path)
    return found


def _owner(path: str) -> str:
    name = Path(path).name
    if "_kernel" in name:
        return "kernel"
    if "python" in name:
        return "Python"
    return "torch" if "torch" in path else "other"


if __name__ == "__main__":
    main()
