"""What `tensonde run` adds to a script: a process imports what it uses, no more."""

from __future__ import annotations

import json
from pathlib import Path

from launch import cli

HEAVY = ("pyarrow", "sympy", "msgspec", "rich", "tensonde.session.session", "tensonde.adapters.torch.run.watcher")
LEFT = "import json, sys\njson.dump(sorted(sys.modules), open('modules.json', 'w'))\n"
TRAINING = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
"""


def modules(script: str, folder: Path) -> list[str]:
    (folder / "script.py").write_text(script + LEFT)
    ran = cli("run", "script.py", cwd=folder)
    assert ran.code == 0, ran.err
    found: list[str] = json.loads((folder / "modules.json").read_text())
    return found


def test_a_script_that_only_imports_torch(tmp_path: Path) -> None:
    loaded = modules("import torch\n", tmp_path)
    assert "tensonde.adapters.torch.seams.install" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_a_training_that_compiles_nothing(tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text(
        "__version__ = '2.2.3'\n"
    )  # which pyarrow imports wherever it is asked for an array
    loaded = modules(TRAINING, tmp_path)
    assert "pandas" not in loaded
    assert "tensonde.adapters.torch.run.watcher" in loaded
    assert "tensonde.adapters.torch.compiled.graphs" not in loaded
    assert "tensonde.adapters.torch.dumping.dump" not in loaded


def test_the_command_itself(tmp_path: Path) -> None:
    """`-X importtime` lists what the command's process and the script's import."""
    (tmp_path / "script.py").write_text("")
    ran = cli("run", "script.py", cwd=tmp_path, env={"PYTHONPROFILEIMPORTTIME": "1"})
    loaded = {line.rpartition("|")[2].strip() for line in ran.err.splitlines() if line.startswith("import time:")}
    assert "tensonde.launch.supervise" in loaded
    assert [name for name in ("numpy", "pyarrow", "rich", "tensonde.diagnose.rules") if name in loaded] == []
