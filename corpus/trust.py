"""Runs every program of `corpus/real` bare and under `tensonde run`, and prints whether Tensonde left it alone.

`python corpus/trust.py [--only PATTERN] [--quick] [--programs FOLDER]`. A program passes when its output, exit code and fingerprint (a hash
of weights, optimizer state and random numbers) are the same, there is no finding, and Tensonde writes nothing to standard
error but its summary. The ratio is processor time of the whole program, start-up included.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "real"
QUICK = ("manual_updates", "swa_ema", "sparse_graph", "threads", "user_modes", "several_models", "torch_func",
         "loader_workers", "hf_trainer_causal", "accelerate_loop", "lightning_classifier", "peft_lora", "sb3_ppo",
         "pyg_gat", "pyro_vae", "neural_ode")  # fmt: skip
"""What CI runs."""
LONGEST = 300
"""Seconds for one program."""
SUMMARY = re.compile(r"^tensonde: (\d+ steps? |no problem found|recording |not watched: )")
"""What a healthy training may be told."""
NUMBER = re.compile(r"\b0x[0-9a-f]+|\b[0-9a-f]{12}\b|\d+")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    seconds: float


def needs(program: Path) -> list[str]:
    """The distributions that a program imports, from its line `# needs: ...`."""
    found = re.search(r"^# needs: (.*)$", program.read_text(), re.MULTILINE)
    return found[1].split() if found else []


def missing(program: Path) -> list[str]:
    absent = []
    for name in needs(program):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            absent.append(name)
    return absent


def run(command: list[str], folder: Path, programs: Path = PROGRAMS) -> Ran:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENSONDE_")}
    environment.update(ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16", PYTHONHASHSEED="0", OMP_WAIT_POLICY="passive")
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), str(programs)])
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        watchdog = threading.Timer(LONGEST, os.killpg, (process.pid, signal.SIGKILL))
        watchdog.start()
        _, status, usage = os.wait4(process.pid, 0)
        watchdog.cancel()
        out.seek(0)
        err.seek(0)
        return Ran(
            os.waitstatus_to_exitcode(status), out.read().decode(errors="replace"), err.read().decode(errors="replace"),
            usage.ru_utime + usage.ru_stime,
        )  # fmt: skip


def surplus(bare: Ran, watched: Ran) -> list[str]:
    """Lines on standard error that neither the program nor the summary explains; numbers and addresses may differ."""
    known = {NUMBER.sub("0", line) for line in bare.err.splitlines()}
    found, informing = [], False
    for line in watched.err.splitlines():
        if line.startswith(("info:", "tensonde:")):
            informing = line.startswith("info:")  # a finding that is no alarm, until the summary goes on
        if line.strip() and not informing and not SUMMARY.match(line) and NUMBER.sub("0", line) not in known:
            found.append(line)
    return found


def judge(bare: Ran, watched: Ran, report: Path, *, again: Ran | None) -> list[str]:
    """`again` is a second bare run: what compiles draws other random numbers while its cache is cold."""
    problems = []
    if watched.code != bare.code:
        problems.append(f"exit code {watched.code} instead of {bare.code}")
    if watched.out != bare.out and (again is None or watched.out != again.out):
        problems.append(
            "the program is not deterministic" if again is not None and again.out != bare.out else "other output"
        )
    try:
        findings = json.loads(report.read_text())["findings"]
        problems += [f"finding {f['rule']}: {f['title']}" for f in findings if f["severity"] != "info"]
    except (OSError, ValueError, KeyError) as problem:
        problems.append(f"no report: {problem}")
    problems += [f"stderr: {line[:160]}" for line in surplus(bare, watched)[:4]]
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", metavar="PATTERN", help="programs by name, e.g. 'hf_*'")
    parser.add_argument(
        "--programs", type=Path, default=PROGRAMS, metavar="FOLDER", help="other programs than corpus/real"
    )
    parser.add_argument("--quick", action="store_true", help="the part that CI runs, in about five minutes")
    parser.add_argument("--keep", action="store_true", help="print the whole output of what fails")
    given = parser.parse_args()
    programs = given.programs.resolve()
    passed, failed, skipped = 0, 0, 0
    for program in sorted(programs.glob("*.py")):
        name = program.stem
        if name == "fingerprint" or not fnmatch.fnmatch(name, given.only) or (given.quick and name not in QUICK):
            continue
        if absent := missing(program):
            print(f"{name:24} skipped: {', '.join(absent)} not installed", flush=True)
            skipped += 1
            continue
        with tempfile.TemporaryDirectory(prefix="tensonde-real-") as scratch:
            folder, report = Path(scratch), Path(scratch) / "report.json"
            bare = run([sys.executable, str(program)], folder, programs)
            if bare.code != 0:
                print(f"{name:24} FAILED bare\n{bare.err[-2000:]}", flush=True)
                failed += 1
                continue
            words = ["-m", "tensonde", "run", "--report", str(report), str(program)]
            watched = run([sys.executable, *words], folder, programs)
            again = run([sys.executable, str(program)], folder, programs) if watched.out != bare.out else None
            problems = judge(bare, watched, report, again=again)
        ratio = watched.seconds / bare.seconds
        said = next((line for line in watched.err.splitlines() if "steps" in line and "tensonde:" in line), "")
        times = f"{bare.seconds:6.1f} s {watched.seconds:6.1f} s {ratio:5.2f}"
        print(
            f"{name:24} {'same' if not problems else 'FAILED':6} {times}  {said.removeprefix('tensonde: ')}", flush=True
        )
        for problem in problems:
            print(f"{'':26}{problem}", flush=True)
        if problems and given.keep:
            print(watched.out[-3000:], watched.err[-6000:], sep="\n", flush=True)
        passed, failed = passed + (not problems), failed + bool(problems)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
