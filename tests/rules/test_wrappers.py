"""Stand-ins for optimizers: a schedule that is given one schedules the optimizer behind it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from silent_trainings import marked, training

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

START = """
    model, criterion = Net(), F.cross_entropy
    def batches():
        return [(x[k : k + 16], y[k : k + 16]) for k in range(0, 256, 16)]
"""
LOOP = """
    {wrapped}
    schedule = torch.optim.lr_scheduler.StepLR(stand_in, 10)  # HERE
    for _ in range(4):
        for a, b in batches():
            stand_in.zero_grad()
            criterion(model(a), b).backward()
            stand_in.step()
            schedule.step()
"""
WRAPPERS = {
    "an optimizer that passes everything on": """class StandIn(torch.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer
        param_groups = property(lambda self: self.optimizer.param_groups)
        state = property(lambda self: self.optimizer.state)
        defaults = property(lambda self: self.optimizer.defaults)
        def zero_grad(self):
            self.optimizer.zero_grad()
        def step(self):
            self.optimizer.step()
    stand_in = StandIn(torch.optim.SGD(model.parameters(), lr=0.05))""",
    "a wrapper that takes the class on": """class StandIn:
        def __init__(self, optimizer):
            self._optimizer = optimizer
            self.__class__ = type("StandIn", (StandIn, type(optimizer)), {})
        def __getattr__(self, name):
            return getattr(self._optimizer, name)
        def step(self):
            self._optimizer.step()
        def zero_grad(self):
            self._optimizer.zero_grad()
    stand_in = StandIn(torch.optim.SGD(model.parameters(), lr=0.05))""",
    "an optimizer that shares its groups with its base": """class Sam(torch.optim.Optimizer):
        def __init__(self, params, base, **kwargs):
            super().__init__(params, dict(kwargs))
            self.base = base(self.param_groups, **kwargs)
            self.param_groups = self.base.param_groups
        def update(self):
            self.base.step()
    stand_in = Sam(model.parameters(), torch.optim.SGD, lr=0.05)""",
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_schedule_of_a_stand_in_is_no_problem(foundry: Foundry, tmp_path: Path, name: str) -> None:
    loop = LOOP.replace("stand_in.step()", "stand_in.update()") if "base" in name else LOOP
    ran = foundry.watched(training(START + loop.replace("{wrapped}", WRAPPERS[name])), tmp_path)
    assert ran.code == 0, ran.err
    assert [finding.rule for finding in diagnose(ran.recording)] == []
    (schedule,) = ran.rank.facts["schedulers"]
    assert ran.rank.facts["optimizers"][schedule["optimizer"]]["steps"] == schedule["steps"] > 20


def test_a_stand_in_of_another_optimizer_is_still_named(foundry: Foundry, tmp_path: Path) -> None:
    other = "stand_in = StandIn(torch.optim.SGD(model.parameters(), lr=0.05)); other = stand_in"
    wrapped = WRAPPERS["an optimizer that passes everything on"].rsplit("\n", 1)[0]
    script = training(
        START
        + LOOP.replace("{wrapped}", f"{wrapped}\n    {other}")
        .replace("schedule = ", "used = torch.optim.SGD(model.parameters(), lr=0.05); schedule = ")
        .replace("stand_in.step()", "used.step()")
    )
    ran = foundry.watched(script, tmp_path)
    (finding,) = [one for one in diagnose(ran.recording) if one.rule == "scheduler-out-of-step"]
    assert finding.source is not None
    assert finding.source.line == marked(script)


REAL = {
    "accelerate": """
    from accelerate import Accelerator
    helper = Accelerator(cpu=True)
    model, stand_in = helper.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    schedule = helper.prepare(torch.optim.lr_scheduler.LambdaLR(stand_in, lambda k: 0.97**k))
    for _ in range(4):
        for a, b in batches():
            helper.backward(criterion(model(a), b))
            stand_in.step(); schedule.step(); stand_in.zero_grad()
    """,
    "lightning": """
    import logging, lightning.pytorch as pl
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    class Task(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.automatic_optimization = model, False
        def training_step(self, batch, k):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(criterion(self.model(batch[0]), batch[1]))
            optimizer.step()
            self.lr_schedulers().step()
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 10)]
    options = dict(enable_progress_bar=False, logger=False, enable_checkpointing=False, enable_model_summary=False)
    pl.Trainer(max_epochs=4, accelerator="cpu", **options).fit(Task(), torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 16, shuffle=True))
    """,
    "transformers": """
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
    sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    bert = BertForSequenceClassification(BertConfig(vocab_size=20, num_labels=2, **sizes))
    rows = torch.randint(0, 20, (64, 6))
    data = [{"input_ids": row, "labels": int(row[0]) % 2} for row in rows]
    given = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=4, report_to=[],
                              save_strategy="no", use_cpu=True, disable_tqdm=True)
    Trainer(bert, given, train_dataset=data).train()
    """,
}


@pytest.mark.companions
@pytest.mark.parametrize("library", REAL)
def test_the_real_stand_ins(foundry: Foundry, tmp_path: Path, library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed (dependency group companions)")
    ran = foundry.watched(training(START + REAL[library]), tmp_path, env={"HF_HUB_OFFLINE": "1"})
    assert ran.code == 0, ran.err
    assert [(finding.rule, finding.title) for finding in diagnose(ran.recording)] == []
    (schedule,) = ran.rank.facts["schedulers"]
    assert schedule["optimizer"] == 0
