"""Two trainings to a verdict: the place where they part is named, and nothing is where they compute the same."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from compare_scripts import PORT, REFERENCE, spoilt

from launch import Foundry
from tensonde.cli.commands.compare import stored
from tensonde.compare.judge import Outcome, judge
from tensonde.compare.side import Side, read_side
from tensonde.launch.dumping import dump_of
from tensonde.session.options import Options
from tensonde.store.claim import create_run


def recorded(foundry: Foundry, folder: Path, script: str, name: str) -> Side:
    cwd = folder / name
    cwd.mkdir()
    ran = foundry.watched(script, cwd, budget=0.05, recommended=False, window=(0, 3))
    assert ran.code == 0, ran.err
    assert ran.folder is not None
    return read_side(ran.folder, name)


def compared(foundry: Foundry, folder: Path, a: str, b: str, chosen: dict[str, str] | None = None) -> Outcome:
    return judge(recorded(foundry, folder, a, "a"), recorded(foundry, folder, b, "b"), chosen)


@pytest.mark.parametrize(
    ("old", "new", "judgement", "site", "setting"),
    [
        ("nn.LayerNorm(width)", "nn.LayerNorm(width, eps=1e-3)", "forward", "blocks.0.norm:out", "blocks.0.norm.eps"),
        ("F.gelu(self.up(self.norm(x)))", "F.gelu(self.up(self.norm(x)), approximate='tanh')", "forward",
         "blocks.0/gelu#0:out", "blocks.0/gelu#0.approximate"),
        ("return x + self.down", "return self.norm(x) + self.down", "forward", "blocks.0/add#0:out", None),
        ("return x + self.down", "return self.down", "forward", "blocks.0:out", None),
        ("self.up(self.norm(x))", "self.up(x)", "forward", "blocks.0.norm:out", "blocks.0.norm"),
        ("self.head(self.drop(x.mean(1)))", "self.head(x.mean(1))", "forward", "drop:out", "drop"),
        ("nn.Dropout(0.1)", "nn.Dropout(0.5)", "forward", "drop:out", "drop.p"),
        ("F.cross_entropy(model(ids), ids.sum(1) % 4)", "F.cross_entropy(model(ids), ids.sum(1) % 4, label_smoothing=0.1)",
         "forward", "/cross_entropy#0:out", "/cross_entropy#0.label_smoothing"),
        ("manual_seed(1)", "manual_seed(2)", "data", "model:in", None),
        ("model = Model()", "model = Model(); nn.init.zeros_(model.head.weight)", "init", "head.weight:value", "head.weight.init"),
        ("for block in self.blocks:", "for block in [self.blocks[0], lambda h: self.blocks[1](h.detach()) + h - h.detach()]:",
         "backward", None, None),
        ("lr=1e-2)", "lr=1e-2, eps=1e-4)", "optimizer", None, "optimizer.eps"),
        ("lr=1e-2)", "lr=1e-2, betas=(0.9, 0.99))", "optimizer", None, "optimizer.betas"),
        ("    optimizer.step()", "    nn.utils.clip_grad_norm_(model.parameters(), 0.01)\n    optimizer.step()", "optimizer", None,
         "clipping.kind"),
        ("model = Model()", "model = Model(); model.embed.weight.requires_grad_(False)", "backward", "embed.weight:grad",
         "embed.weight.requires_grad"),
    ],
)  # fmt: skip
def test_what_was_spoilt_is_named_first(
    foundry: Foundry, tmp_path: Path, old: str, new: str, judgement: str, site: str | None, setting: str | None
) -> None:
    verdict = compared(foundry, tmp_path, spoilt(REFERENCE, old, new), REFERENCE).verdict
    assert verdict.verdict == "divergent"
    assert verdict.judgement == judgement, verdict.first
    assert verdict.first is not None
    assert site is None or verdict.first.site == site
    assert setting is None or verdict.settings[0].what == setting
    assert verdict.exit_code == 1


def test_a_script_is_equivalent_to_itself_on_one_thread(foundry: Foundry, tmp_path: Path) -> None:
    alone = spoilt(REFERENCE, "torch.manual_seed(0)", "torch.set_num_threads(1); torch.manual_seed(0)")
    verdict = compared(foundry, tmp_path, REFERENCE, alone).verdict
    assert verdict.verdict == "equivalent", verdict.first
    assert verdict.exit_code == 0
    assert verdict.losses["within_1_permille"]


def test_the_same_in_other_words_is_equivalent(foundry: Foundry, tmp_path: Path) -> None:
    outcome = compared(foundry, tmp_path, PORT, REFERENCE)
    assert outcome.verdict.verdict == "equivalent", outcome.verdict.first
    assert outcome.pairing.modules["layers.1.mlp.0"] == "blocks.1.up"
    assert outcome.pairing.modules["layers.1"] == "blocks.1"
    assert outcome.pairing.weights["out.bias"] == "head.bias"


def test_a_defect_is_found_through_other_names(foundry: Foundry, tmp_path: Path) -> None:
    port = spoilt(PORT, "nn.GELU()", "nn.GELU(approximate='tanh')")
    verdict = compared(foundry, tmp_path, port, REFERENCE).verdict
    assert verdict.first is not None
    assert verdict.first.site.startswith("layers.0.mlp.1/gelu")
    assert verdict.first.other_site == "blocks.0/gelu#0:out"


def test_another_draw_is_no_other_initialisation(foundry: Foundry, tmp_path: Path) -> None:
    other = spoilt(REFERENCE, "torch.manual_seed(0)", "torch.manual_seed(7)")
    outcome = compared(foundry, tmp_path, other, REFERENCE)
    assert outcome.verdict.judgement == "init"
    assert outcome.drawn
    scaled = spoilt(REFERENCE, "model = Model()", "model = Model(); model.head.weight.data.mul_(3)")
    (tmp_path / "scaled").mkdir()
    assert not compared(foundry, tmp_path / "scaled", scaled, REFERENCE).drawn


def test_a_step_beyond_the_trace_is_told_by_the_curves(foundry: Foundry, tmp_path: Path) -> None:
    late = spoilt(REFERENCE, "    loss = F", "    ids = ids if step < 4 else ids.flip(0) % 7\n    loss = F")
    outcome = compared(foundry, tmp_path, late, REFERENCE)
    assert outcome.late == 4
    scheduled = spoilt(
        REFERENCE, "    optimizer.step()\n", "    optimizer.step()\n    optimizer.param_groups[0]['lr'] = 1e-2 if step < 3 else 1e-3\n"
    )  # fmt: skip
    (tmp_path / "rate").mkdir()
    verdict = compared(foundry, tmp_path / "rate", scheduled, REFERENCE).verdict
    assert verdict.judgement == "optimizer"
    assert verdict.first is not None
    assert verdict.first.step == 4
    assert verdict.settings[0].what == "optimizer.lr at step 4"


def test_two_different_networks_cannot_be_compared(foundry: Foundry, tmp_path: Path) -> None:
    other = """
    import torch
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(torch.rand(2, 3, 6, 6)).sum().backward()
        optimizer.step()
    """
    verdict = compared(foundry, tmp_path, other, REFERENCE).verdict
    assert verdict.verdict == "incomparable"
    assert "nothing in common" in verdict.notes[0]
    assert verdict.exit_code == 2


def test_the_users_map_wins(foundry: Foundry, tmp_path: Path) -> None:
    outcome = compared(foundry, tmp_path, PORT, REFERENCE, {"layers.0": "blocks.1"})
    assert outcome.pairing.modules["layers.0"] == "blocks.1"
    assert outcome.pairing.modules["layers.0.ln"] != "blocks.1.ln"


ACCUMULATING = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, labels = torch.randn(160, 8), torch.randint(0, 4, (160,))
    for step in range(5):
        optimizer.zero_grad()
        for part in range(PARTS):
            size = 32 // PARTS
            k = 32 * step + size * part
            loss = nn.functional.cross_entropy(model(inputs[k : k + size]), labels[k : k + size]) / PARTS
            loss.backward()
        optimizer.step()
"""


def parts(count: int, old: str = "", new: str = "") -> str:
    text = textwrap.dedent(ACCUMULATING)
    assert old in text
    return text.replace(old, new).replace("PARTS", str(count)) if old else text.replace("PARTS", str(count))


@pytest.mark.parametrize(("one", "other"), [(1, 4), (4, 1), (2, 4)])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_gradient_accumulation_is_another_layout_of_the_same(
    foundry: Foundry, tmp_path: Path, one: int, other: int, kind: str
) -> None:
    verdict = compared(foundry, tmp_path, parts(one, "SGD", kind), parts(other, "SGD", kind)).verdict
    assert verdict.verdict == "equivalent", verdict.first
    assert "laid out differently" in verdict.notes[0]
    assert verdict.losses["within_1_permille"]


@pytest.mark.parametrize(
    ("old", "new", "judgement", "told"),
    [
        (" / PARTS\n", "\n", "backward", "adds up 4 micro-batches and does not divide their losses by 4"),
        ("lr=0.1", "lr=0.05", "optimizer", "Those of B are 0.5 times as large throughout"),
        ("torch.randn(160, 8)", "torch.randn(160, 8).abs()", "data", "all micro-batches taken together"),
        ("nn.ReLU()", "nn.Tanh()", "forward", "their mean losses are"),
    ],
)
def test_what_else_differs_is_still_found(
    foundry: Foundry, tmp_path: Path, old: str, new: str, judgement: str, told: str
) -> None:
    verdict = compared(foundry, tmp_path, parts(1), parts(4, old, new)).verdict
    assert verdict.verdict == "divergent"
    assert verdict.first is not None
    assert verdict.judgement == judgement
    assert told in verdict.first.why


def test_batches_that_are_normalised_by_themselves_are_named(foundry: Foundry, tmp_path: Path) -> None:
    one, other = (parts(count, "nn.ReLU()", "nn.BatchNorm1d(16)") for count in (1, 4))
    verdict = compared(foundry, tmp_path, one, other).verdict
    assert verdict.first is not None
    assert "1 (BatchNorm1d) normalises each micro-batch by itself" in verdict.first.why


def test_other_draws_in_another_layout_cannot_be_compared(foundry: Foundry, tmp_path: Path) -> None:
    one = parts(1, "nn.ReLU()", "nn.Dropout(0.5)")
    other = parts(4, "nn.ReLU()", "nn.Dropout(0.5)").replace("for step in", "torch.rand(1)\nfor step in")
    verdict = compared(foundry, tmp_path, one, other).verdict
    assert verdict.verdict == "incomparable"
    assert "1 draws random numbers" in verdict.notes[0]


def test_a_rate_that_explains_the_updates_comes_first(foundry: Foundry, tmp_path: Path) -> None:
    """A bias before a normalisation has an update of nothing but rounding; another setting differs and does nothing yet."""
    text = parts(1, "nn.ReLU()", "nn.BatchNorm1d(16)")
    other = text.replace("lr=0.1", "lr=0.05, momentum=0.9, nesterov=False")
    verdict = compared(foundry, tmp_path, text, other).verdict
    assert verdict.first is not None
    assert verdict.judgement == "optimizer"
    assert verdict.first.evidence["update_norm"][0] > 1e-3, "an update that counts"
    assert verdict.first.evidence["ratio"] == pytest.approx(0.5, rel=1e-3)
    assert (verdict.settings[0].what, verdict.settings[0].a, verdict.settings[0].b) == ("optimizer.lr", 0.1, 0.05)


def test_runs_without_a_trace_are_compared_by_their_dumps(foundry: Foundry, tmp_path: Path) -> None:
    script = """
        import torch, sys
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
        for step in range(2):
            model(torch.ones(3, 4)).square().mean().backward()
            optimizer.step()
    """
    for name, rate in (("a", "0.1"), ("b", "0.1"), ("c", "0.2")):
        cwd = tmp_path / name
        cwd.mkdir()
        folder = create_run(cwd, "run", {"script": "script.py", "argv": []})
        dump = dump_of(("model:out",), None, None, folder)
        (cwd / "script.py").write_text(textwrap.dedent(script))
        options = Options(run=str(folder), budget=0.0, recommended=False, dump=dump)
        assert foundry.ran(cwd / "script.py", cwd, options, folder, argv=[rate]).code == 0
    a, b, c = (tmp_path / name / "run" for name in "abc")
    assert stored(a, b, {}, "local").verdict == "equivalent"
    verdict = stored(a, c, {}, "local")
    assert verdict.first is not None
    assert (verdict.first.site, verdict.first.step) == ("model:out", 1)
