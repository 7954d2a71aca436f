"""By hand: `python campaign.py SECONDS [SEED]` tries damaged inputs until the time is over, and prints what failed, each place once.

With `PYTHONPATH=src:tests:tests/fuzz`.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz_commands import FILE_COMMANDS, RUN_COMMANDS, Failed, fill, run
from fuzz_material import make
from fuzz_mutations import mutate

from launch import Foundry


def main() -> None:
    seconds, first = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    home = Path(tempfile.mkdtemp(prefix="tensonde-fuzz-"))
    base = home / "base"
    base.mkdir()
    foundry = Foundry()
    make(foundry, base)
    foundry.close()
    things = sorted(base.iterdir())
    print([path.name for path in things], flush=True)
    seen: Counter[str] = Counter()
    number, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        seed = random.Random(first + number)
        number += 1
        thing = seed.choice(things + [t for t in things if t.name == "run"] * 3)
        given = home / "given" / thing.name
        shutil.rmtree(given.parent, ignore_errors=True)
        given.parent.mkdir()
        (shutil.copytree if thing.is_dir() else shutil.copy)(thing, given)
        files = sorted(path for path in given.rglob("*") if path.is_file()) if given.is_dir() else [given]
        how = [mutate(seed.choice(files), seed) for _ in range(seed.choice((1, 1, 2)))]
        command = seed.choice(RUN_COMMANDS if thing.name in ("run", "old") else FILE_COMMANDS)
        words = fill(command, given, thing, home / "out" / "made")
        try:
            code, _ = run(words)
            seen[f"exit {code}"] += 1
        except Failed as problem:
            lines = [line for line in str(problem).splitlines() if line.strip()]
            place = next((line.strip() for line in reversed(lines) if "tensonde/" in line), "")
            key = f"{lines[0][:140]} | {place}"
            if not seen[key]:
                print(f"#{first + number - 1} {words[0]} {how}\n   {key}", flush=True)
            seen[key] += 1
    print(number, "inputs")
    for key, count in seen.most_common():
        print(count, key)
    shutil.rmtree(home)


main()
