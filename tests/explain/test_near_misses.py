"""Where the facts do not tell the cause, the explanation must not claim one; and what Tensonde does for it must not
show."""

from __future__ import annotations

import textwrap
from pathlib import Path

from test_exceptions import HEAD, findings

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose


def script(text: str) -> str:
    return HEAD + textwrap.dedent(text)


def test_data_that_disagree_are_not_blamed_on_the_forward(foundry: Foundry, tmp_path: Path) -> None:
    found = findings(foundry, script("""
        model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3))
        x, y = torch.randn(8, 2, 3), torch.zeros(6, dtype=torch.long)
        loss = F.cross_entropy(model(x), y)
    """), tmp_path)  # fmt: skip
    assert "batch-size-changed" not in {f.rule for f in found}
    assert found[0].rule == "shape-mismatch"
    assert found[0].evidence["in.target"] == "[6] int64"


def test_soft_labels_of_the_wrong_shape_are_no_dtype_problem(foundry: Foundry, tmp_path: Path) -> None:
    found = findings(foundry, script("""
        model = nn.Linear(4, 3)
        x, y = torch.randn(8, 4), torch.rand(8, 5)
        loss = F.cross_entropy(model(x), y)
    """), tmp_path)  # fmt: skip
    assert "label-dtype" not in {f.rule for f in found}


def test_a_batch_of_one_without_a_loader_names_no_loader(foundry: Foundry, tmp_path: Path) -> None:
    found = findings(foundry, script("""
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
        loader = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4)
        model(torch.randn(1, 4))
    """), tmp_path)  # fmt: skip
    assert found[0].rule == "batchnorm-batch-of-one"
    assert "drop_last" not in found[0].advice
    assert found[0].source is not None
    assert found[0].source.code == "model(torch.randn(1, 4))"
    assert found[0].site == "1:out"


def test_frozen_parameters_are_not_the_cause_where_others_train(foundry: Foundry, tmp_path: Path) -> None:
    found = findings(foundry, script("""
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        model[0].weight.requires_grad = False
        loss = model(torch.randn(8, 4)).mean()
        loss = torch.tensor(loss.item())
        loss.backward()
    """), tmp_path)  # fmt: skip
    assert found[0].rule == "loss-without-gradient"
    assert found[0].source is not None
    assert found[0].source.code == "loss = torch.tensor(loss.item())"


def test_an_interrupt_is_no_finding(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(script("""
        model = nn.Linear(4, 4)
        model(torch.randn(2, 4))
        raise KeyboardInterrupt
    """), tmp_path)  # fmt: skip
    assert diagnose(ran.recording) == []


def test_an_exception_that_is_caught_is_no_finding(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(script("""
        model = nn.Linear(4, 4)
        try:
            model(torch.randn(2, 5))
        except RuntimeError:
            model(torch.randn(2, 4))
    """), tmp_path)  # fmt: skip
    assert ran.code == 0
    assert diagnose(ran.recording) == []


def test_a_program_that_fails_without_torch_is_not_recorded(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched("import json\nraise ValueError('mine')\n", tmp_path)
    assert ran.code == 1
    assert ran.recording.ranks == []


def test_running_the_forward_again_is_not_seen(foundry: Foundry, tmp_path: Path) -> None:
    """Nothing is printed, random states and buffers are as they were, and the recording has no second forward."""
    text = script("""
        import atexit
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
            def forward(self, x):
                print("forward", torch.rand(1).item())
                h = torch.exp(self.norm(self.a(x)))
                h += 1
                return h
        model = Net()
        def end():
            print(torch.rand(1).item(), model.norm.running_mean.tolist(), model.norm.num_batches_tracked.item())
        atexit.register(end)
        x = torch.randn(8, 4)
        loss = model(x).mean()
        loss.backward()
    """)  # fmt: skip
    (tmp_path / "bare").mkdir()
    (tmp_path / "watched").mkdir()
    bare = foundry.bare(text, tmp_path / "bare")
    ran = foundry.watched(text, tmp_path / "watched")
    assert ran.out == bare.out
    assert ran.out.count("forward") == 1
    found = diagnose(ran.recording)
    assert found[0].rule == "inplace-modification"
    assert "again" in str(found[0].evidence)
    assert len(ran.at("a:out")) == 1


def test_all_inputs_of_the_failing_op_are_told(foundry: Foundry, tmp_path: Path) -> None:
    found = findings(foundry, script("""
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 1))
            def forward(self, x):
                return self.head(x)
        Net()(torch.randn(2, 4))
    """), tmp_path)  # fmt: skip
    raised = found[-1]
    assert raised.rule == "exception"
    assert raised.op == "linear"
    assert raised.evidence["class"] == "forward op"
    assert raised.evidence["in.input"] == "[2, 4] float32"
    assert raised.evidence["in.self.weight"] == "[1, 5] float32"
    assert str(raised.site).endswith("head.1:out")


def test_a_failing_item_is_told_by_its_index(foundry: Foundry, tmp_path: Path) -> None:
    found = findings(foundry, script("""
        class Rows(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, i):
                return torch.ones(4) / 0 if i < 5 else open("/nowhere")
        model = nn.Linear(4, 4)
        for x in DataLoader(Rows(), batch_size=2):
            model(x)
    """), tmp_path)  # fmt: skip
    assert found[0].rule == "exception" or found[-1].rule == "exception"
    raised = next(f for f in found if f.rule == "exception")
    assert raised.evidence["class"] == "data loading"
    assert "item 5" in raised.advice
