"""Our callbacks in the real Hugging Face Trainer, and in a loop with Accelerate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (dependency group companions)")
accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed (dependency group companions)")

from train_sample import equal, parts, weights

import tensonde
from launch import Foundry
from tensonde.train import Callback, EarlyStopping, LossMonitor, ModelCheckpoint, RunContext, SaveBest

pytestmark = [pytest.mark.slow, pytest.mark.companions]


def bert() -> Any:
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2
        )
    )


def samples(count: int = 16) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 20, (count, 6), generator=generator)
    return [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": int(row[0]) % 2} for row in tokens]


def fit(
    tmp_path: Path, *callbacks: Callback, epochs: int = 2, accumulate: int = 1, evaluate: bool = False, steps: int = -1
) -> Any:
    args = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), num_train_epochs=epochs, max_steps=steps, per_device_train_batch_size=4, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, seed=0, learning_rate=1e-2, logging_steps=1,
        gradient_accumulation_steps=accumulate, eval_strategy="epoch" if evaluate else "no",
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=bert(), args=args, train_dataset=samples(), eval_dataset=samples() if evaluate else None,
        compute_metrics=lambda given: {"accuracy": float((given.predictions.argmax(1) == given.label_ids).mean())},
        callbacks=[tensonde.transformers(*callbacks)],
    )  # fmt: skip
    trainer.train()
    return trainer


class Log(Callback):
    def __init__(self) -> None:
        self.log: list[str] = []

    def begin(self, run_context: RunContext) -> None:
        self.log.append("begin")

    def epoch_end(self, run_context: RunContext) -> None:
        self.log.append(f"epoch {run_context.original_args().mode}")

    def step_end(self, run_context: RunContext) -> None:
        known = run_context.original_args()
        self.log.append(f"{known.cur_epoch_num}.{known.cur_step_num}/{known.batch_num}")

    def on_train_end(self, run_context: RunContext) -> None:
        self.log.append("end")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_events_losses_and_the_same_weights(tmp_path: Path, accumulate: int) -> None:
    plain = fit(tmp_path, accumulate=accumulate)
    log, losses, saver = Log(), LossMonitor(0), ModelCheckpoint("net", tmp_path)
    watched = fit(tmp_path, log, losses, saver, accumulate=accumulate)
    assert equal(weights(watched.model), weights(plain.model)), "callbacks change nothing"
    per = 4 // accumulate
    steps = [f"{1 + k // per}.{k + 1}/{per}" for k in range(2 * per)]
    assert log.log == ["begin", *steps[:per], "epoch train", *steps[per:], "epoch train", "end"]
    logged = [entry["loss"] for entry in watched.state.log_history if "loss" in entry]
    assert losses.losses == pytest.approx(logged, abs=1e-3), "as the Trainer itself logs it"
    assert saver.latest == tmp_path / f"net-2_{per}.safetensors"


def test_the_step_within_the_epoch_with_max_steps(tmp_path: Path) -> None:
    """Four batches in an epoch, whatever `max_steps` and `num_train_epochs` say."""
    log = Log()
    fit(tmp_path, log, steps=3)
    assert log.log[1:-2] == ["1.1/4", "1.2/4", "1.3/4"]
    log = Log()
    fit(tmp_path, log, steps=3, accumulate=2)
    assert [entry for entry in log.log if "/" in entry] == ["1.1/2", "1.2/2", "2.3/2"]


def test_under_tensonde_run_the_losses_are_the_trainers(foundry: Foundry, tmp_path: Path) -> None:
    """Of a model that leaves it to the Trainer to divide."""
    ran = foundry.watched(
        """
        import json, os, torch, transformers, tensonde
        from tensonde.train import LossMonitor

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(4, 1)
                self.raw = []

            def forward(self, x, labels):
                loss = (self.layer(x) - labels).square().mean()
                self.raw.append(loss.item())
                return {"loss": loss}

        torch.manual_seed(0)
        data = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(16)]
        args = transformers.TrainingArguments(
            output_dir="out", max_steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[],
            save_strategy="no", use_cpu=True, disable_tqdm=True, logging_steps=1,
        )
        net, monitor = Net(), LossMonitor(0)
        trainer = transformers.Trainer(net, args, train_dataset=data, callbacks=[tensonde.transformers(monitor)])
        trainer.train()
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        json.dump([net.raw, monitor.losses, logged], open(os.environ["RESULT"], "w"))
        """,
        tmp_path,
        env={"HF_HUB_OFFLINE": "1"},
    )
    assert ran.code == 0, ran.err
    raw, told, logged = ran.result
    assert told == pytest.approx(logged, rel=1e-5)
    assert told == pytest.approx([(a + b) / 2 for a, b in zip(raw[::2], raw[1::2], strict=True)], rel=1e-5)
    assert [value for _, value in ran.scalars("loss")] == pytest.approx(raw, rel=1e-6)


def test_evaluations_best_and_stop(tmp_path: Path) -> None:
    log, best = Log(), SaveBest("accuracy", tmp_path / "best.safetensors")
    fit(tmp_path, log, best, EarlyStopping("accuracy", patience=1), epochs=30, evaluate=True)
    assert 1 < log.log.count("epoch train") < 30
    assert best.best is not None
    assert (tmp_path / "best.safetensors").exists()


@pytest.mark.parametrize(("mixed", "accumulate"), [("no", 1), ("bf16", 1), ("no", 2)])
def test_accelerate_in_a_plain_loop(mixed: str, accumulate: int) -> None:
    def train(monitor: LossMonitor | None) -> tuple[list[torch.Tensor], list[float]]:
        network, loss_fn, optimizer, loader = parts()
        accelerate.state.AcceleratorState._reset_state()  # a process has one, and each run wants its own
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision=mixed, gradient_accumulation_steps=accumulate)
        network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
        losses = []
        for x, y in loader if monitor is None else tensonde.loop(loader, monitor):
            with accelerator.accumulate(network):
                optimizer.zero_grad()
                loss = loss_fn(network(x), y)
                accelerator.backward(loss)
                optimizer.step()
                losses.append(loss.item())
        return weights(network), losses

    monitor = LossMonitor(0)
    expected, losses = train(None)
    found, _ = train(monitor)
    assert equal(found, expected)
    assert monitor.losses == losses
