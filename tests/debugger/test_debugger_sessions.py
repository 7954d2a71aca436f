"""Real trainings under `tensonde debug`, driven by command files: what stops where, and what is shown there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from debug_drive import ATTENTION, Talk, debug, environment, line_of, plain

ATTN = line_of(ATTENTION, "x = x + self.attn(x)")
SOFTMAX = line_of(ATTENTION, "F.softmax")
LOSS = line_of(ATTENTION, "loss = criterion")
BACKWARD = line_of(ATTENTION, "loss.backward()")
STEP = line_of(ATTENTION, "optimizer.step()")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return plain(ATTENTION, tmp_path_factory.mktemp("plain")).stdout


def test_a_module_is_stopped_at_in_forward_and_in_backward(tmp_path: Path, undisturbed: str) -> None:
    talk = debug(ATTENTION, ["break attn", "c", "where", "c", "where", "list", "info br", "delete", "c"], tmp_path)
    assert f"● the training begins\nstep 0 · forward\n  {ATTENTION}:{LOSS}" in talk.greeting
    added, forward, where, backward, where_back, listing, points, removed, _ = talk.answers
    assert added == "breakpoint 1 at attn\n"
    assert "● breakpoint 1\nstep 0 · forward · attn:out  float32[2,5,8]  Attention\n  min -" in forward
    assert f":{ATTN}  x = x + self.attn(x)" in forward
    assert "modules  model\n" in where
    assert f"attention.py:{ATTN}  in forward" in where
    assert f"attention.py:{LOSS}  in main" in where
    assert "● breakpoint 1\nstep 0 · backward · attn:grad  float32[2,5,8]" in backward
    assert "forward line that made it: " in backward
    assert f":{ATTN}  x = x + self.attn(x)" in backward
    assert f"made in the forward pass by {ATTENTION}:{ATTN}" in where_back
    assert f" →  {ATTN:>4}          x = x + self.attn(x)" in where_back
    assert f"attention.py:{BACKWARD}  in main      loss.backward()" in where_back
    assert f" →  {ATTN:>4}  " in listing
    assert "attn" in points
    assert "hit 2 times" in points
    assert removed == "removed 1 breakpoint\n"
    assert (talk.code, talk.out) == (0, undisturbed)


def test_ops_lines_and_conditions_are_stopped_at(tmp_path: Path, undisturbed: str) -> None:
    commands = [
        "break attn/softmax#0", "c", "where", "c", "delete",
        f"tbreak attention.py:{SOFTMAX}", "c", "info breakpoints",
        f"break attention.py:{STEP} if step == 3", "c", "delete",
        "break head:out if norm > 0", "c", "unwatch 14", "c",
    ]  # fmt: skip
    talk = debug(ATTENTION, commands, tmp_path)
    _, op, where, gradient, _, _, line, none, _, third, _, made, hit, gone, _ = talk.answers
    assert "● breakpoint 1\nstep 0 · forward · attn/softmax#0:out  float32[2,5,5]  softmax" in op
    assert "modules  model → attn\n" in where
    assert "step 0 · backward · attn/softmax#0:grad  float32[2,5,5]" in gradient
    assert f"forward line that made it: {ATTENTION}:{SOFTMAX}" in gradient
    assert f"● breakpoint 2\nstep 1 · forward · in attn\n  {ATTENTION}:{SOFTMAX}" in line
    assert "there are no breakpoints" in none
    assert f"● breakpoint 3\nstep 3 · forward\n  {ATTENTION}:{STEP}" in third
    assert made.startswith("made watchpoint 14 of it: head:out norm > 0 (it pauses;")
    assert "● watchpoint hit\n  watchpoint 14: head:out norm > 0  norm is 0." in hit
    assert "(set: norm > 0)" in hit
    assert "step 4 · forward · head:out  float32[2,3]  Linear" in hit
    assert gone == "removed watchpoint 14\n"
    assert (talk.code, talk.out) == (0, undisturbed)


def places(talk: Talk) -> list[str]:
    """Step, phase and site of each answer that is a stop."""
    return [
        line.partition("  ")[0]
        for answer in talk.answers
        for line in answer.splitlines()
        if line.startswith("step ") and " · " in line
    ]


def test_step_next_until_and_finish_go_where_they_say(tmp_path: Path, undisturbed: str) -> None:
    commands = [
        "next", "next", "until attn.qkv:grad", "step", "", "step 2",
        "next op", "ni", "ni", "finish", "finish", "until attn/softmax#0", "finish",
        "until attn/softmax#0:grad",
        "finish", "c",
    ]  # fmt: skip
    talk = debug(ATTENTION, commands, tmp_path)
    assert places(talk) == [
        "step 0 · forward · embed:out",
        "step 0 · forward · attn.qkv:out",
        "step 0 · backward · attn.qkv:grad",
        "step 1 · forward",
        "step 2 · forward",
        "step 4 · forward",
        "step 4 · forward · /randn#0:out",
        "step 4 · forward · /randint#0:out",
        "step 4 · forward · embed/linear#0:out",
        "step 4 · forward · embed:out",
        "step 4 · forward · model:out",
        "step 5 · forward · attn/softmax#0:out",
        "step 5 · forward · attn:out",
        "step 5 · backward · attn/softmax#0:grad",
        "step 5 · backward · attn/matmul#0:grad",
    ]
    assert "● end of step 0\n" in talk.answers[3]
    assert "● end of step 1\n" in talk.answers[4], "an empty line repeats the last command"
    assert talk.out == undisturbed


def test_values_can_be_looked_at(tmp_path: Path, undisturbed: str) -> None:
    commands = [
        "step", "until head:out", "print attn:out[0, :, 3:5]", "print lstm:out[1][0, 0, :3]", "p head.weight",
        "stats attn:out", "stats **.weight:grad", "hist head.weight", "diff attn:out", "diff head.weight",
        "diff lstm:out[1] lstm:out[2]", "print embed:grad", "save attn:out saved", "save attn:out saved.npy",
        "p head.weight:update", "detach",
    ]  # fmt: skip
    talk = debug(ATTENTION, commands, tmp_path)
    (_, _, part, second, weight, stats, table, hist, change, moved, between, old, saved, again, update, _) = (
        talk.answers
    )
    assert part.startswith("attn:out[0, :, 3:5]  float32[5,2]\n  [[")
    assert second.startswith("lstm:out[1][0, 0, :3]  float32[3]\n  [")
    assert weight.startswith("head.weight:value  float32[3,8]\n  [[")
    array = np.load(tmp_path / "saved.npy")
    assert f"norm      {np.linalg.norm(array.astype(float)):.4g}\n" in stats
    assert f"negative  {(array < 0).sum()}  (" in stats
    assert "  attn.qkv.weight:grad  float32[24,8]" in table
    assert hist.count("█") > 10
    assert "magnitudes" in hist
    assert "against the step before: 80 of 80 elements changed (100.0%)" in change
    assert "relative L2" in change
    assert "largest at" in change
    assert "against the step before: 24 of 24 elements changed" in moved
    assert "against lstm:out[2]: " in between
    assert "note: of step 0: the site did not run yet in step 1" in old
    assert saved == f"saved attn:out float32[2,5,8] to {tmp_path / 'saved.npy'}\n"
    assert "saved.npy exists already and is not overwritten" in again
    assert update.startswith("head.weight:update  float32[3,8]\n")
    assert talk.out == undisturbed


def test_the_change_of_a_parameter_is_its_update(tmp_path: Path) -> None:
    commands = ["save head.weight w0.npy", "step", "save head.weight w1", "save head.weight:grad g0",
                "diff head.weight", "step", "save head.weight w2", "save head.weight:update u2",
                "q"]  # fmt: skip
    talk = debug(ATTENTION, commands, tmp_path)
    w0, w1, w2, g0, u2 = (np.load(tmp_path / f"{name}.npy") for name in ("w0", "w1", "w2", "g0", "u2"))
    np.testing.assert_array_equal(u2, w2 - w1)
    np.testing.assert_allclose(w1, w0 - np.float32(0.1) * g0, rtol=1e-6)
    assert f"max abs {np.abs(w1.astype(float) - w0).max():.6g} " in talk.answers[4]


def test_set_writes_into_the_live_tensor_and_says_what_that_means(tmp_path: Path, undisturbed: str) -> None:
    commands = ["step", "set head.weight[0, :] = 5", "p head.weight[0]", "set head.weight = many", "c"]
    talk = debug(ATTENTION, commands, tmp_path)
    assert (
        "warning: head.weight:value was changed: from here on the training is no longer bit-identical"
        in talk.answers[1]
    )
    assert "[5. 5. 5. 5. 5. 5. 5. 5.]" in talk.answers[2]
    assert "error: 'many' is not a number" in talk.answers[3]
    assert talk.code == 0
    assert talk.out.splitlines()[0] == undisturbed.splitlines()[0]
    assert talk.out.splitlines()[1] != undisturbed.splitlines()[1]


def test_a_watchpoint_pauses_where_it_hits(tmp_path: Path, undisturbed: str) -> None:
    commands = [
        "watch attn.out.weight:grad norm > 0", "watch nonsense nan", "watch", "c", "where", "info hits",
        "recheck 14",
        "unwatch 14", "recheck 14", "conditions", "c",
    ]  # fmt: skip
    talk = debug(ATTENTION, commands, tmp_path)
    made, unknown, listed, hit, _, hits, recheck, gone, missing, conditions, _ = talk.answers
    assert made == "watchpoint 14: attn.out.weight:grad norm > 0 (pauses)\n"
    assert "warning: no site matches 'nonsense' so far" in unknown
    assert "watchpoint 15: nonsense nan" in unknown
    assert "attn.out.weight:grad  norm > 0" in listed
    assert "● watchpoint hit\n  watchpoint 14: attn.out.weight:grad norm > 0  norm is " in hit
    assert "step 0 · " in hit
    assert "watchpoint 14: attn.out.weight:grad" in hits
    assert "1 hits in the digests of " in recheck
    assert gone == "removed watchpoint 14\n"
    assert "there is no watchpoint '14'" in missing
    assert "exploding" in conditions
    assert talk.out == undisturbed


NAN = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(3, 4)
    if step == 2:
        x[1, 2] = float("nan")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_nan_pauses_without_being_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "nan.py"
    script.write_text(NAN)
    talk = debug(script, ["c", "print", "q"], tmp_path)
    assert "● watchpoint hit" in talk.answers[0]
    assert "step 2 · forward · " in talk.answers[0]
    assert "nan " in talk.answers[0]
    assert "nan.py:12  loss = model(x).square().mean()" in talk.answers[0]
    assert "nan" in talk.answers[1]


def test_a_loss_that_hit_is_shown_as_it_is_and_not_as_the_one_before(tmp_path: Path) -> None:
    script = tmp_path / "inf.py"
    script.write_text(
        NAN.replace('x[1, 2] = float("nan")', "pass").replace(".mean()", '.mean() * (float("inf") if step == 2 else 1)')
    )
    talk = debug(script, ["c", "print loss:value", "q"], tmp_path)
    assert "step 2 · forward" in talk.answers[0]
    assert "inf" in talk.answers[1]
    assert "of step 1" not in talk.answers[1]


PDB = [f"break attention.py:{SOFTMAX}", "c", "pdb"]


def test_pdb_steps_through_the_users_own_lines_and_comes_back(tmp_path: Path, undisturbed: str) -> None:
    commands = [
        f"break attention.py:{SOFTMAX}", "c", "pdb",
        "p scores.shape", "n", "p weights.sum().item()", "s", "n", "q",
        "where", "delete", "break attn:out", "c", "pdb", "p tuple(tensor.shape), tensonde_stop.reason",
        "p self.head(torch.zeros(1, 8)).shape", "tensonde_value('head.weight').shape", "c", "status",
        "delete", "c",
    ]  # fmt: skip
    talk = debug(ATTENTION, commands, tmp_path)
    text = talk.shown
    assert "-> weights = F.softmax(scores, dim=-1)\n(Pdb) p scores.shape\ntorch.Size([2, 5, 5])" in text
    assert "(Pdb) n\n> " in text
    assert f"attention.py({SOFTMAX + 1})forward()" in text
    assert "(Pdb) p weights.sum().item()\n9.99" in text or "(Pdb) p weights.sum().item()\n10.0" in text
    assert "--Return--" in text, "s goes over torch's own files"
    assert "site-packages" not in text.partition("(tensonde) where")[0]
    assert f"(Pdb) q\n● line\nstep 0 · forward · in model\n  {ATTENTION}:{ATTN + 1}" in text
    assert "((2, 5, 8), 'breakpoint')" in text
    assert "(Pdb) p self.head(torch.zeros(1, 8)).shape\ntorch.Size([1, 3])\n(Pdb)" in text, "no stop inside a stop"
    assert "(3, 8)\n(Pdb) c\n● breakpoint 2\nstep 2 · forward · attn:out" in text
    assert talk.code == 0
    assert talk.out == undisturbed


def test_line_breakpoints_work_again_after_pdb(tmp_path: Path, undisturbed: str) -> None:
    commands = [*PDB, "n", "c", "where", "delete", "c"]
    talk = debug(ATTENTION, commands, tmp_path)
    assert "(Pdb) c\n● breakpoint 1\nstep 1 · forward · in attn" in talk.shown
    assert talk.out == undisturbed


def test_commands_left_on_a_line_wait_for_the_next_stop(tmp_path: Path) -> None:
    talk = debug(ATTENTION, ["break head:out; c; print head:out[0]; d; c"], tmp_path)
    assert "(tensonde) print head:out[0]\nhead:out[0]  float32[3]\n" in "(tensonde) ".join(
        [*talk.answers[:2], "print head:out[0]\n" + talk.answers[2]]
    )
    assert talk.code == 0


MISTAKES = {
    "breka attn": "error: there is no command 'breka'; did you mean `break`?",
    "stat": "error: 'stat' may be stats or status",
    "break": "there are no breakpoints",
    "break nosuch.py:3": "error: there is no file 'nosuch.py'",
    "break attention.py:1 if (": "error: the condition '(' is not a Python expression",
    "break attn if norm >": "error: ",
    "until": "error: until which site?",
    "step zero": "error: step takes how often",
    "next foo": "error: next 'foo' is not known; it may be op.",
    "delete 7": "error: there is no breakpoint '7'",
    "print nosuch:out": "error: there is no site 'nosuch:out'",
    "print attn:out": "error: ",
    "print head.weight[0,0,0]": "error: head.weight:value has shape [3, 8] and cannot be sliced so",
    "print 1 + 1": "error: '1 + 1' is not a site; Python expressions are for `pdb`.",
    "diff head.weight": "error: ",
    "finish": "error: no module is running here",
    "info": "error: info about what?",
    "help nosuch": "error: there is no command 'nosuch'",
    "help break": "For example: break train.py:42 if step > 3",
    "tree nosuch": "error: no module matches 'nosuch'",
}


def test_a_mistake_is_explained_and_the_prompt_stays(tmp_path: Path, undisturbed: str) -> None:
    talk = debug(ATTENTION, [*MISTAKES, "# a comment", "c"], tmp_path)
    for (command, expected), answer in zip(MISTAKES.items(), talk.answers, strict=False):
        assert expected in answer, command
        assert "Tensonde failed" not in answer, command
    assert talk.out == undisturbed


def test_a_condition_that_fails_stops_and_says_so(tmp_path: Path) -> None:
    talk = debug(ATTENTION, [f"break attention.py:{STEP} if nosuch > 3", "c", "q"], tmp_path)
    assert "the condition of breakpoint 1 failed, so it stops: name 'nosuch' is not defined" in talk.answers[1]
    assert "● breakpoint 1" in talk.answers[1]


def test_the_condition_of_a_line_knows_tensondes_names(tmp_path: Path) -> None:
    """Inside the model's forward there is no variable `step`; where the frame has one, it counts."""
    condition = "step == 2 and epoch >= 0 and rank == 0 and phase == 'forward' and loss > 0"
    commands = [f"break attention.py:{SOFTMAX} if {condition}", "c", "delete", "c"]
    talk = debug(ATTENTION, commands, tmp_path)
    assert "failed" not in talk.answers[1]
    assert "● breakpoint 1\nstep 2 · forward" in talk.answers[1]


def test_run_opens_the_prompt_only_at_a_hit(tmp_path: Path) -> None:
    script = tmp_path / "nan.py"
    script.write_text(NAN)
    done = subprocess.run(
        [sys.executable, "-m", "tensonde", "run", "--on-hit", "pause", str(script)],
        input="where\nquit\n", cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "the training begins" not in done.stderr
    assert done.stderr.count("●") == 1
    assert "● watchpoint hit" in done.stderr
    assert "(tensonde) where\nstep 2 · " in done.stderr


def test_a_console_is_imported_without_torch_and_without_a_prompt() -> None:
    check = "import sys, tensonde.debugger.console; print({'torch', 'prompt_toolkit', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], env=environment(), capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def test_a_breakpoint_on_an_unknown_site_warns_but_stays(tmp_path: Path) -> None:
    talk = debug(ATTENTION, ["break atn:out", "break criterion", "c", "q"], tmp_path)
    assert "warning: no site matches 'atn:out' so far; the nearest are attn:out" in talk.answers[0]
    assert "breakpoint 1 at atn:out" in talk.answers[0]
    assert "warning: no site matches 'criterion' so far" in talk.answers[1]
    assert "● breakpoint 2\nstep 0 · forward · criterion:out  float32[]" in talk.answers[2]


def test_information(tmp_path: Path) -> None:
    commands = [
        "tree",
        "tree attn",
        "status",
        "step",
        "info sites lstm:out",
        "info optimizers",
        "info overhead",
        "help",
        "q",
    ]
    talk = debug(ATTENTION, commands, tmp_path)
    tree, part, status, _, sites, optimizers, overhead, help_, _ = talk.answers
    assert re.search(r"^    attn +Attention +288", tree, re.M)
    assert "attn.qkv  Linear" in part
    assert "embed" not in part
    assert "breakpoints  0" in status
    assert "lstm:out[2]  float32[1,2,8]" in sites
    assert "SGD\n  group 0  tensors=12, elements=931, lr=0.1" in optimizers
    assert "budget" in overhead
    assert "full steps" in overhead
    assert "watch [SITE CONDITION]" in help_


FINALLY = """
import torch
from torch import nn

model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for step in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        print("step", step)
finally:
    print("cleaned up")
"""


@pytest.mark.parametrize(
    "where", ["break model:out; c; q", "break model:grad; c; q", "step; q", "break quit.py:10; c; q"]
)
def test_quit_ends_the_training_cleanly_wherever_it_is(tmp_path: Path, where: str) -> None:
    script = tmp_path / "quit.py"
    script.write_text(FINALLY)
    talk = debug(script, [where], tmp_path)
    assert talk.code == 0
    assert talk.out.endswith("cleaned up\n")
    assert "step 2" not in talk.out
    assert "Traceback" not in talk.shown


def test_the_end_of_the_commands_detaches(tmp_path: Path, undisturbed: str) -> None:
    talk = debug(ATTENTION, ["break attn"], tmp_path)
    assert "detached: the training goes on without stops" in talk.answers[-1]
    assert talk.shown.count("●") == 1
    assert (talk.code, talk.out) == (0, undisturbed)
