"""Every block of the documentation and every example of a --help is run, or says why not.

A page runs in a folder with the examples and nothing else: what it uses, it makes. A block that cannot be run has a line above it, `<!-- not run: the reason -->`; transcripts and samples are `text`,
`console`, `json` or `toml`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest

from tensonde.cli.main import Lazy, cli

ROOT = Path(__file__).parent.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>.+) -->\n)?```(?P<language>.*)\n(?P<text>(?s:.*?))^```$", re.MULTILINE
)
SHOWN = {"text", "console", "json", "toml"}
"""Nothing to run: what programs print (other tests compare it), and files."""
SLOW = {
    "graph-mode", "compare", "culprits", "train", "replay", "tune", "agents", "editors", "ci", "check", "tour", "recording", "run",
}  # fmt: skip
"""Pages that take half a minute and more."""
NEEDS = re.compile(r"^# needs: (\w+)$", re.MULTILINE)
"""In a block: a package of the dependency group companions, without which the block is passed over."""


def blocks(page: Path) -> list[tuple[str, str]]:
    return [
        (found["language"], found["text"])
        for found in BLOCK.finditer(page.read_text())
        if found["language"] in ("bash", "python")
        and not found["reason"]
        and all(find_spec(name) for name in NEEDS.findall(found["text"]))
    ]


def pages() -> list[Any]:
    """Every page with something to run."""
    with_blocks = [page for page in PAGES if re.search(r"^```(bash|python)$", page.read_text(), re.MULTILINE)]
    marks: dict[Path, list[Any]] = {
        page: [pytest.mark.companions] if NEEDS.search(page.read_text()) else [] for page in with_blocks
    }
    for page in with_blocks:
        marks[page] += [pytest.mark.slow] if page.stem in SLOW else []
    return [pytest.param(page, id=page.stem, marks=marks[page]) for page in with_blocks]


def clean_environment() -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if not name.startswith("TENSONDE")}
    found["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), found["PATH"]])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    found = [match["language"] for match in BLOCK.finditer(page.read_text())]
    assert len(found) == page.read_text().count("```") // 2, "every block is recognised"
    assert set(found) <= {"bash", "python", *SHOWN}


@pytest.mark.parametrize("page", pages())
@pytest.mark.timeout(300)
def test_every_block_runs(page: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "corpus").symlink_to(ROOT / "corpus")
    for language, text in blocks(page):
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "bash" else [sys.executable, "-c", text]
        done = subprocess.run(
            command, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr or text.endswith("|| true\n"), f"{text}\n{done.stderr}"


# -- the examples of --help ------------------------------------------------------------------------

TRAINING = "a training: parsed here, and run with such options by the tests of its command"
HUB = "needs a hub and a browser: parsed here; tests/hub run it"
NOT_RUN = {
    "run": TRAINING, "debug": TRAINING, "check": TRAINING, "lr": TRAINING, "tune": TRAINING, "ui": HUB, "attach": HUB,
    "mcp": "waits for an agent; tests/agents speak to it", "dap": "waits for an editor; tests/agents speak to it",
    "merge": "needs the runs of two machines; tests/hub run it", "compare --run": TRAINING, "compare dump": "needs Ray", "replay bundles": "needs a factory of the user's",
}  # fmt: skip
"""By the beginning of an example: why it is not run, only parsed."""


def examples() -> list[tuple[str, list[str]]]:
    """Command and words of each example, as its --help shows it."""
    context, found = click.Context(cli), []
    for name in Lazy.commands_by_name:
        command = cli.get_command(context, name)
        assert command is not None
        lines = [line.strip() for line in (command.help or "").splitlines()]
        shown = [
            line[line.index("tensonde ") :] for line in lines if re.match(rf"(echo .* \| )?tensonde {name}\b", line)
        ]
        assert shown, f"tensonde {name} --help has no example"
        for line in shown:
            words = shlex.split(re.split(r" {2,}| \| ", line)[0])
            found.append((name, words[2:]))
    return found


def unrun(name: str, words: list[str]) -> str:
    line = " ".join([name, *words])
    return next((reason for begin, reason in NOT_RUN.items() if line == begin or line.startswith(f"{begin} ") or
                 (" " in begin and line.startswith(begin))), "")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for all examples: a training that goes wrong, under every name that they use."""
    made = tmp_path_factory.mktemp("examples")
    for name in ("train.py", "ref.py", "port.py"):
        shutil.copy(ROOT / "examples" / "focal_loss.py", made / name)
    runs = made / ".tensonde" / "runs"
    done = subprocess.run(
        [sys.executable, "-m", "tensonde", "run", "-q", "--record", str(runs / "demo"), "--save-step", "37",
         "--dump", "head:out", "--dump-steps", "3", "train.py"],
        cwd=made, env=clean_environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("monday", "tuesday", "NAME"):
        shutil.copytree(runs / "demo", runs / name)
    for name in ("a", "b", "node0/run", "node1/run"):
        shutil.copytree(runs / "demo", made / name)
    shutil.copytree(runs / "demo" / "dump", made / "dump")
    script = """
        import torch
        from safetensors.torch import save_file
        weights = {"head.weight": torch.ones(4, 4), "blocks.0.attn.weight": torch.zeros(2)}
        for name in ("model.pt", "last.pt", "net.ckpt"):
            torch.save(weights, name)
        for name in ("other", "step100", "step200"):
            save_file(weights, f"{name}.safetensors")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=made, check=True, timeout=120)
    return made


@pytest.mark.parametrize(("name", "words"), examples(), ids=lambda value: value if isinstance(value, str) else None)
def test_the_examples_of_help(name: str, words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    command.make_context(name, list(words), resilient_parsing=False)  # options that there are
    if unrun(name, words) or ("wandb" in words and not find_spec("wandb")):
        return
    wide = [str(word).replace("**.attn:out", "head:out").replace("fc1:out", "head:out") for word in words]
    code: Any = 0
    try:
        command.main(wide, prog_name=f"tensonde {name}", standalone_mode=False)
    except SystemExit as end:
        code = end.code
    assert code in ((0, 1) if name in ("diagnose", "replay", "compare", "ckpt") else (None, 0))


QUOTED = re.compile(r"^error: (.*?)  \(step \d+.*\)\n    corpus/bugs/(\w+)/train.py:(\d+)$", re.MULTILINE)


@pytest.mark.parametrize(("title", "script", "line"), QUOTED.findall((ROOT / "docs" / "culprits.md").read_text()))
def test_the_culprits_are_what_tensonde_says(title: str, script: str, line: str, tmp_path: Path) -> None:
    """But for the step, which rounding decides."""
    path = ROOT / "corpus" / "bugs" / script / "train.py"
    done = subprocess.run(
        [sys.executable, "-m", "tensonde", "run", "--record", "out", str(path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert f"error: {title}" in done.stderr
    assert f"train.py:{line}\n" in done.stderr


def test_the_tour_shows_what_tensonde_says(tmp_path: Path) -> None:
    """The line quoted in the tour and in the README is what the demo prints, but for the step, which rounding decides."""
    quoted = re.search(r"^error: (.*)  \(step \d+, forward\)$", (ROOT / "docs" / "tour.md").read_text(), re.MULTILINE)
    assert quoted is not None
    assert quoted.group(1) in (ROOT / "README.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "tensonde", "run", "--record", "out", str(ROOT / "examples" / "focal_loss.py")],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert quoted.group(1) in done.stderr
