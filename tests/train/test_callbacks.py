"""Callbacks in `Model` and in a plain loop: the order, the context, the stop, and that they change nothing."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from train_sample import by_hand, equal, parts, weights

import tensonde
from launch import Foundry, python
from tensonde.errors import UsageError
from tensonde.train import (
    Callback,
    EarlyStopping,
    LearningRateMonitor,
    LossMonitor,
    Model,
    RunContext,
    SaveBest,
    StopAtTime,
    TimeMonitor,
    WatchMonitor,
    load_checkpoint,
)
from tensonde.train.monitors import BadLoss

EVENTS = ["begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"]


class Log(Callback):
    """Notes every event."""

    def __init__(self, log: list[str], name: str = "") -> None:
        self.log, self.name = log, name


for _event in EVENTS:

    def _method(self: Log, run_context: RunContext, event: str = _event) -> None:
        self.log.append(self.name + event)

    setattr(Log, _event, _method)


def plain_loop(callbacks: Any, epochs: int = 2, **options: Any) -> tuple[list[torch.Tensor], tensonde.train.loop.Loop]:  # type: ignore[name-defined]
    network, loss_fn, optimizer, loader = parts()
    run = tensonde.loop(loader, callbacks, epochs=epochs, **options)
    for x, y in run:
        optimizer.zero_grad()
        loss_fn(network(x), y).backward()
        optimizer.step()
    return weights(network), run


def in_model(callbacks: Any, epochs: int = 2) -> list[torch.Tensor]:
    network, loss_fn, optimizer, loader = parts()
    Model(network, loss_fn, optimizer).train(epochs, loader, callbacks)
    return weights(network)


@pytest.mark.parametrize("train", [in_model, lambda callbacks: plain_loop(callbacks)[0]], ids=["Model", "loop"])
def test_the_order_of_events_and_of_callbacks(train: Any) -> None:
    log: list[str] = []
    train([Log(log, "a "), Log(log, "b ")])
    step = ["step_begin", *["step_end"]]
    one = ["epoch_begin", *step * 4, "epoch_end"]
    assert log == [f"{name} {event}" for event in ["begin", *one, *one, "end"] for name in "ab"]


@pytest.mark.parametrize("train", [in_model, lambda callbacks: plain_loop(callbacks)[0]], ids=["Model", "loop"])
def test_the_weights_are_those_of_a_loop_by_hand_bit_for_bit(train: Any, capsys: pytest.CaptureFixture[str]) -> None:
    expected, losses = by_hand()
    monitor = LossMonitor()
    assert equal(train([monitor, LearningRateMonitor(), TimeMonitor()]), expected)
    assert monitor.losses == losses
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"epoch: 1 step: 1, loss is {losses[0]}"
    assert printed[5] == f"epoch: 2 step: 1, loss is {losses[4]}"  # after the first epoch's time


class Facts(Callback):
    def step_end(self, run_context: RunContext) -> None:
        self.known = dict(run_context.original_args())


def test_what_a_callback_is_told() -> None:
    network, loss_fn, optimizer, loader = parts()
    facts = Facts()
    Model(network, loss_fn, optimizer).train(3, loader, facts)
    known = facts.known
    assert known["loss_fn"] is loss_fn
    assert known["optimizer"] is optimizer
    assert known["train_network"] is network
    assert known["train_dataset"] is loader
    assert (known["cur_epoch_num"], known["cur_step_num"], known["batch_num"], known["epoch_num"]) == (3, 12, 4, 3)
    assert known["net_outputs"].shape == ()
    assert not known["net_outputs"].requires_grad


def test_a_plain_loop_is_seen_without_being_told() -> None:
    facts = Facts()
    _, _run = plain_loop(facts)
    assert type(facts.known["train_network"]).__name__ == "Sequential"
    assert type(facts.known["optimizer"]).__name__ == "Adam"
    assert (facts.known["cur_epoch_num"], facts.known["cur_step_num"]) == (2, 8)
    assert torch.autograd.backward.__module__ == "torch.autograd", "what was wrapped is put back"


def test_the_loss_before_the_scaler() -> None:
    network, loss_fn, optimizer, loader = parts()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    monitor, expected = LossMonitor(0), []
    for x, y in tensonde.loop(loader, monitor):
        optimizer.zero_grad()
        loss = loss_fn(network(x), y)
        expected.append(loss.item())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert monitor.losses == expected


def test_variables_of_ones_own_and_a_stop() -> None:
    class Counting(Callback):
        def begin(self, run_context: RunContext) -> None:
            run_context.original_args().mine = 0

        def step_end(self, run_context: RunContext) -> None:
            known = run_context.original_args()
            known.mine += 1
            if known.mine == 3:
                run_context.request_stop()

    log: list[str] = []
    in_model([Counting(), Log(log)])
    assert log == ["begin", "epoch_begin", *["step_begin", "step_end"] * 3, "epoch_end", "end"]
    with pytest.raises(AttributeError, match=r"no 'nothing'; it has .*cur_step_num"):
        RunContext(tensonde.train.context.arguments()).original_args().nothing  # noqa: B018


def test_an_exception_keeps_its_type_and_names_the_callback() -> None:
    class Broken(Callback):
        def step_end(self, run_context: RunContext) -> None:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        in_model([Log([]), Broken()])
    assert caught.value.__notes__ == ["raised by the callback Broken (2 of 2) in step_end, epoch 1, step 1"]


@pytest.mark.parametrize("given", [LossMonitor, "loss", [object()]])
def test_what_is_no_callback_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match=r"is no tensonde\.train\.Callback"):
        in_model([given] if not isinstance(given, list) else given)


def diverging() -> tuple[Any, ...]:
    network, loss_fn, optimizer, loader = parts()
    return network, lambda out, y: loss_fn(out, y) / (0.0 if loader_calls() > 2 else 1.0), optimizer, loader


_calls = 0


def loader_calls() -> int:
    global _calls
    _calls += 1
    return _calls


@pytest.mark.parametrize("on_bad", ["stop", "raise"])
def test_the_loss_monitor_ends_at_inf(on_bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    global _calls
    _calls = 0
    network, loss_fn, optimizer, loader = diverging()
    monitor = LossMonitor(0, on_bad=on_bad)
    model = Model(network, loss_fn, optimizer)
    if on_bad == "raise":
        with pytest.raises(BadLoss, match="epoch: 1 step: 3, the loss is inf"):
            model.train(5, loader, monitor)
    else:
        model.train(5, loader, monitor)
        assert capsys.readouterr().out == "epoch: 1 step: 3, the loss is inf; the training ends\n"
    assert len(monitor.losses) == 3
    assert math.isinf(monitor.losses[-1])


def test_stop_at_time(capsys: pytest.CaptureFixture[str]) -> None:
    network, loss_fn, optimizer, loader = parts()
    Model(network, loss_fn, optimizer).train(10**6, loader, StopAtTime(run_time=0.05 / 60))
    out = capsys.readouterr().out
    assert re.fullmatch(r"epoch: \d+ step: \d+ loss: \d+\.\d+(e-\d+)?\n", out), "numbers, no tensors"


def test_a_data_sink_is_accepted_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    from tensonde.train import model as module

    module._say_sink.cache_clear()
    network, loss_fn, optimizer, loader = parts()
    model = Model(network, loss_fn, optimizer, metrics={"loss"})
    model.train(1, loader, None, False)
    assert not caplog.records
    for _ in range(2):
        model.train(1, loader, dataset_sink_mode=True, sink_size=2)
    model.eval(loader, dataset_sink_mode=True)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["dataset_sink_mode has no effect"]


def test_save_best_and_early_stopping_follow_the_evaluation(tmp_path: Path) -> None:
    network, loss_fn, optimizer, loader = parts()
    model = Model(network, loss_fn, optimizer, metrics={"accuracy", "loss"})
    best = SaveBest("accuracy", tmp_path / "best.safetensors")
    stop = EarlyStopping("accuracy", patience=2)
    seen: list[float] = []

    class Note(Callback):
        def epoch_end(self, run_context: RunContext) -> None:
            seen.append(run_context.original_args().metrics["accuracy"])

    model.train(200, loader, [Note(), best, stop], valid_dataset=loader)
    assert best.best == max(seen)
    assert len(seen) < 200, "an accuracy cannot get better for 200 epochs"
    assert max(seen[:-2]) >= max(seen[-2:])
    load_checkpoint(tmp_path / "best.safetensors", network)
    assert model.eval(loader)["accuracy"] == best.best


def test_early_stopping_names_what_is_missing() -> None:
    with pytest.raises(UsageError, match="looks for 'accuracy', and the metrics so far are: none"):
        in_model(EarlyStopping("accuracy"))


def test_an_evaluation_leaves_the_network_as_it_was() -> None:
    network, loss_fn, _optimizer, loader = parts()
    network[0].eval()
    modes = [module.training for module in network.modules()]
    log: list[str] = []
    Model(network, loss_fn, metrics={"loss"}).eval(loader, Log(log))
    assert [module.training for module in network.modules()] == modes
    assert log == ["begin", "epoch_begin", *["step_begin", "step_end"] * 4, "epoch_end", "end"]


def test_the_names_of_newer_mindspore() -> None:
    class Newer(Callback):
        log: list[str] = []  # noqa: RUF012

        def on_train_step_end(self, run_context: RunContext) -> None:
            self.log.append("train")

        def on_eval_step_end(self, run_context: RunContext) -> None:
            self.log.append("eval")

    network, loss_fn, optimizer, loader = parts()
    model = Model(network, loss_fn, optimizer, {"loss"}, callbacks=Newer())
    model.train(1, loader)
    model.eval(loader)
    assert Newer.log == ["train"] * 4 + ["eval"] * 4


def test_batches_that_are_no_pairs() -> None:
    network, loss_fn, optimizer, _ = parts()
    with pytest.raises(UsageError, match=r"gives Tensor and not \(input, label\)"):
        Model(network, loss_fn, optimizer).train(1, [torch.ones(2, 4)])
    with pytest.raises(UsageError, match="Sequential gave no loss"):
        Model(network, None, optimizer).train(1, [torch.ones(2, 4)])
    with pytest.raises(UsageError, match="needs an optimizer"):
        Model(network, loss_fn).train(1, [])


def test_break_ends_the_run() -> None:
    log: list[str] = []
    _, _, _, loader = parts()
    for _batch in tensonde.loop(loader, Log(log)):
        break
    assert log == ["begin", "epoch_begin", "step_begin", "end"]


SCRIPT = """
import tensonde, torch
from torch import nn
from tensonde.train import Model, WatchMonitor
torch.manual_seed(0)
network = nn.Linear(4, 1)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(6)]
data[3][0][0, 0] = float("nan")
monitor = WatchMonitor("**:out nan", stop=True)
Model(network, nn.MSELoss(), optimizer).train(1, data, monitor)
print(len(monitor.hits) > 0, monitor.hits[0].moment.step, monitor.findings[0].severity, monitor.findings[0].step)
"""


def test_watch_monitor_brings_hits_and_findings(tmp_path: Path) -> None:
    done = python("-c", SCRIPT, cwd=tmp_path)
    assert done.out == "True 3 error 3\n", done.err
    assert "tensonde: error: " in done.err


LOOPS = """
import hashlib, sys, torch, tensonde
from torch import nn
from tensonde.train import LossMonitor, WatchMonitor
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=8, shuffle=True)
ours = len(sys.argv) > 1
for batch in tensonde.loop(loader, [LossMonitor(0), WatchMonitor()]) if ours else loader:
    loss = model(batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest(), loss.item())
if ours:  # after the loop nothing is noted any more, though the session that began in it has wrapped what was ours
    import gc
    from tensonde.train.seen import Seen
    (model(batch).sum()).backward()
    assert all(not seen.losses for seen in gc.get_objects() if isinstance(seen, Seen))
"""


def test_a_plain_loop_with_callbacks_under_tensonde_is_the_same_bit_for_bit(foundry: Foundry, tmp_path: Path) -> None:
    bare = foundry.bare(LOOPS, tmp_path)
    assert bare.code == 0, bare.err
    assert foundry.bare(LOOPS, tmp_path, argv=["ours"]).out == bare.out
    watched = foundry.watched(LOOPS, tmp_path, argv=["ours"])
    assert watched.out == bare.out, watched.err


def test_watch_monitor_refuses_a_wrong_watchpoint() -> None:
    with pytest.raises(UsageError):
        WatchMonitor("**:out nonsense >")


def test_import_stays_light(tmp_path: Path) -> None:
    code = "import tensonde, tensonde.train, sys; print([m for m in ('torch', 'torchmetrics', 'optuna', 'rich') if m in sys.modules])"
    assert python("-c", code, cwd=tmp_path).out == "[]\n"


def test_the_progress_bar_is_on_standard_error_and_shows_the_loss(capsys: pytest.CaptureFixture[str]) -> None:
    network, loss_fn, optimizer, loader = parts()
    Model(network, loss_fn, optimizer).train(1, loader, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "training" in shown.err
    assert "loss 0." in shown.err
    Model(network, loss_fn, optimizer).train(1, loader)
    assert capsys.readouterr() == ("", ""), "none where there is no terminal"
