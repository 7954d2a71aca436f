"""The facts of a recording: their records, their page, and those of older recordings."""

from __future__ import annotations

from pathlib import Path

from silent_trainings import training
from strict_facts import misfits

from launch import Foundry
from tensonde.model.document import PAGE, page
from tensonde.model.facts import SCHEMA, Facts, facts_in
from tensonde.model.site import SourceLine

ROOT = Path(__file__).parent.parent.parent
LINE = {"file": "train.py", "line": 3, "code": "opt = SGD(p)"}

WIDE = """
    from torch.utils.data import DataLoader, TensorDataset
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    for epoch in range(2):
        model.train()
        for a, b in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(a), b)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        scheduler.step(loss.item())
        model.eval()
        with torch.no_grad():
            model(x)
"""


def test_every_key_of_a_training_has_a_field(foundry: Foundry, tmp_path: Path) -> None:
    facts = foundry.watched(training(WIDE), tmp_path).rank.facts
    assert facts["schema"] == SCHEMA
    assert misfits(facts) == []
    assert facts.keys() == set(Facts.__struct_fields__), "a field that nobody writes"


def test_the_page_of_facts_is_up_to_date() -> None:
    assert (ROOT / PAGE).read_text() == page(), "run python -m tensonde.model.document"


def test_an_older_recording_is_upgraded() -> None:
    facts, problems = facts_in({"schema": 1, "optimizers": [{"type": "SGD", "source": LINE}], "reached": None})
    assert problems == []
    assert facts.schema == SCHEMA
    assert facts.optimizers[0].made == SourceLine("train.py", 3, "opt = SGD(p)")
    assert facts.reached == []


def test_one_damaged_key_does_not_cost_the_others() -> None:
    facts, (problem,) = facts_in({"parameters": {"x": 3}, "modules": {"fc": {"type": "Linear"}}, "unheard_of": 1})
    assert "parameters" in str(problem)
    assert facts.modules["fc"].type == "Linear"
    assert facts.parameters == {}
