"""Titles and advice in the words of the framework that trained. Rules are written in PyTorch's."""

from __future__ import annotations

import re

_MINDSPORE = (
    # Whole sentences, where MindSpore works in another way.
    (r"Call optimizer\.step\(\) after backward\(\)", "Call optimizer(grads) with the gradients of every step"),
    (
        r"Update the parameters after backward\(\), with an optimizer or p -= lr \* p\.grad;",
        "Update the parameters after each backward pass, with optimizer(grads);",
    ),
    (
        r"Call optimizer\.zero_grad\(\) in every step, before backward\(\)",
        "Reset the accumulated gradients to zero after each step: ops.assign(total, ops.zeros_like(total))",
    ),
    (r"Call step\(\) inside the loop, after each backward\(\)", "Call optimizer(grads) inside the loop"),
    (
        r"Clip after backward\(\) and before optimizer\.step\(\)",
        "Clip the gradients and pass the result to the optimizer",
    ),
    (
        r"Call scaler\.unscale_\(optimizer\) after backward\(\) and before clipping",
        "Unscale before clipping: grads = scaler.unscale(grads)",
    ),
    (
        r"Call scaler\.step\(optimizer\) and scaler\.update\(\) instead of optimizer\.step\(\)",
        "Unscale before the optimizer: grads = scaler.unscale(grads); with FixedLossScaleManager(drop_overflow_update=False) or sens=, "
        "give the optimizer the same loss_scale",
    ),
    (
        r"Call scheduler\.step\(\) after each optimizer step or each epoch, whichever its numbers count",
        "MindSpore calls a schedule at every step: give its numbers in steps, not in epochs",
    ),
    (
        r"Clip the gradients between backward\(\) and step\(\) \([\w.]+\)",
        "Clip the gradients (ops.clip_by_global_norm)",
    ),
    (
        r"Use torch\.amp\.GradScaler around backward and step, or autocast to bfloat16",
        "Scale the loss (amp.DynamicLossScaler, or Model(..., loss_scale_manager=...)), or compute in bfloat16",
    ),
    (
        r"\(autocast dtype=torch\.bfloat16, or autocast\(enabled=False\) around it\)",
        "(cell.to_float(mindspore.float32), or a custom_white_list without it in amp.auto_mixed_precision)",
    ),
    (
        r"in bfloat16 with torch\.autocast",
        'in bfloat16 with amp.auto_mixed_precision(net, "O2", mindspore.bfloat16)',
    ),
    (r"use half precision through torch\.autocast\('cpu', dtype=torch\.bfloat16\)", "compute in float32"),
    (r"autocast casts by itself where it runs", "amp.auto_mixed_precision casts by itself"),
    (
        r"no \.item\(\), \.detach\(\), torch\.tensor\(\.\.\.\) on the way",
        "no asnumpy(), stop_gradient or Tensor(...) on the way",
    ),
    (
        r"\.item\(\), \.detach\(\), \.data, argmax or torch\.tensor\(\.\.\.\)",
        "asnumpy(), stop_gradient, argmax or Tensor(...)",
    ),
    (r"Move it out of the no_grad block", "Remove the stop_gradient"),
    (r"it runs without gradients \(no_grad\)", "it runs without gradients"),
    (r"Remove the detach\(\) or no_grad\(\)", "Remove the stop_gradient"),
    (r"\(z \+ \(chosen - z\)\.detach\(\)\)", "(z + ops.stop_gradient(chosen - z))"),
    (r"detach\(\) one side", "Put ops.stop_gradient around one side"),
    (r"Compute the target under torch\.no_grad\(\)", "Compute the target under ops.stop_gradient"),
    (
        r"at the start of each epoch, after every evaluation",
        "at the start of each epoch, after every evaluation (Model.train does it)",
    ),
    (
        r"if they are frozen on purpose, set requires_grad_\(False\)",
        "if they are frozen on purpose, set requires_grad = False on each",
    ),
    (
        r"Call (\S+)\.requires_grad_\(False\), or set it on each parameter",
        r"Set requires_grad = False on each parameter of \1",
    ),
    (r"requires_grad_\((True|False)\)", r"requires_grad = \1"),
    (
        r"register_buffer without a gradient",
        "Parameter(..., requires_grad=False)",
    ),
    (r"look at the missing_keys that load_state_dict returns", "look at the names that load_param_into_net returns"),
    (r"load with strict=True", "load with strict_load=True"),
    (
        r"copy\.deepcopy\(model\.state_dict\(\)\)",
        "{p.name: p.copy() for p in net.get_parameters()}, or save_checkpoint",
    ),
    (r"load_state_dict\((\S+)\)", r"load_param_into_net(net, \1)"),
    (r"Use DataLoader\(\.\.\., shuffle=True\)", "Make the data set with shuffle=True"),
    (r"a DataLoader worker failed", "a worker of the data set failed"),
    (r"\(DataLoader workers share tensors there\)", "(workers of data sets share arrays there)"),
    (
        r"Give the loader a collate_fn that pads them \([\w.]+\)",
        "Pad them: padded_batch, or a per_batch_map of batch()",
    ),
    (r"give the loader a collate_fn that does", "give batch() a per_batch_map that does"),
    (r"filter them in a collate_fn", "filter them with the data set's filter()"),
    (r"torch\.finfo\(dtype\)\.min", "a large negative number (-1e4 in float16)"),
    (
        r"torch\.empty, torch\.Tensor\(n\) and to_empty\(\) return uninitialized memory",
        "ops.empty and numpy.empty return uninitialized memory",
    ),
    (r"torch\.utils\.checkpoint around", "recompute() of"),
    (r"(torch\.amp\.)?GradScaler", "amp.DynamicLossScaler"),
    # Names.
    (r"nn\.ModuleList or nn\.ModuleDict", "nn.CellList or nn.CellDict"),
    (r"nn\.ModuleList", "nn.CellList"),
    (r"nn\.Module\b", "nn.Cell"),
    (r"nn\.Parameter\b", "Parameter"),
    (r"model\.parameters\(\)", "net.trainable_params()"),
    (r"\bmodel\.train\(\)", "net.set_train()"),
    (r"\bmodel\.eval\(\)", "net.set_train(False)"),
    (r"\.eval\(\)", ".set_train(False)"),
    (r"\.train\(\)", ".set_train()"),
    (r"\btrain\(\)", "set_train()"),
    (r"\beval\(\)", "set_train(False)"),
    (r"not between backward\(\) and step\(\)", "its result does not reach the optimizer"),
    (r"scheduler\.step\(\)", "the schedule's step()"),
    (r"after optimizer\.step\(\)", "after optimizer(grads)"),
    (r"optimizer\.step\(\)", "optimizer(grads)"),
    (r"F\.(\w+)", r"ops.\1"),
    (r"torch\.nn\.utils\.clip_grad_norm_", "ops.clip_by_global_norm"),
    (r"\.to\(torch\.(\w+)\)", r".astype(mindspore.\1)"),
    (r"torch\.(b?float\d+|int\d+)", r"mindspore.\1"),
    (r"torch\.tensor\(", "mindspore.Tensor("),
    (r"torch\.from_numpy", "Tensor.from_numpy"),
    (r"torch\.(where|stack|cat|eye|zeros|sigmoid)\b", r"ops.\1"),
    (r"\.detach\(\)\.cpu\(\)\.numpy\(\)", ".asnumpy()"),
    (r"\bdim=", "axis="),
    (r"\bin this module's forward\b", "in the construct of this cell"),
    (r"\bthis module's forward\b", "the construct of this cell"),
)
WORDS = {"mindspore": [(re.compile(pattern), words) for pattern, words in _MINDSPORE]}


def in_words_of(framework: str, text: str) -> str:
    for pattern, words in WORDS.get(framework, ()):
        text = pattern.sub(words, text)
    return text
