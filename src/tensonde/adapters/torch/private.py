"""Every private name of torch that this adapter uses: what for, and what happens without it. Nothing outside of this list is used: a test looks.

torch may change these from one release to the next. Names marked "needed" are there in every release from 2.8 to 2.13; without one of them
Tensonde does not start, says so in one line, and the training runs as it would without Tensonde. Where another release has another name, this
module finds the right one.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

NEEDED = "needed: without it nothing is watched, and the training runs on its own"
CONTAINED = "Tensonde says once that this failed, and goes on without it"

NAMES: dict[str, tuple[str, str]] = {
    # Modes and dispatch
    "torch._C.DisableTorchFunction": ("our own ops are seen by no mode and no subclass", NEEDED),
    "torch._C._push_on_torch_function_stack": ("putting a mode of ours below the user's", NEEDED),
    "torch._C._pop_torch_function_stack": ("taking it off again", NEEDED),
    "torch._C._len_torch_function_stack": ("whether the user has modes of their own", NEEDED),
    "torch._C._get_function_stack_at": ("which modes are active", NEEDED),
    "torch._C._dispatch_tls_is_dispatch_key_included": ("whether a function transform runs, in which nothing is looked at", NEEDED),
    "torch._C._get_tracing_state": ("whether torch.jit traces, in which nothing is looked at", NEEDED),
    "torch._C._is_any_autocast_enabled": ("replaying a call under the autocast that it ran in", NEEDED),
    "torch._C._DisableAutocast": ("running a compiled graph node by node as the compiler meant it", CONTAINED),
    "torch._C._get_torch_function_state": ("calling our own code with function modes off, and on again as they were", NEEDED),
    "torch._C._set_torch_function_state": ("as _get_torch_function_state", NEEDED),
    "torch._C._TorchFunctionState": ("as _get_torch_function_state", NEEDED),
    "torch._C._len_torch_dispatch_stack": ("whether dispatch modes are active", NEEDED),
    "torch._C._push_on_torch_dispatch_stack": ("putting dispatch modes back", NEEDED),
    "torch._C._pop_torch_dispatch_stack": ("taking dispatch modes off while our own code runs", NEEDED),
    "torch._C._get_dispatch_mode": ("whether the compiler traces, in which nothing is looked at", NEEDED),
    "torch._C._TorchDispatchModeKey": ("as _get_dispatch_mode", NEEDED),
    "torch.utils._device._device_constructors": ("which functions torch.device changes", NEEDED),
    "torch.utils._device.DeviceContext": ("recognising the mode of torch.device", NEEDED),
    "torch.utils._python_dispatch.TorchDispatchMode": ("finding the line at which a training waits for the device", NEEDED),
    "torch._C._functorch.is_functorch_wrapped_tensor": ("leaving out what torch.func puts in place of parameters", NEEDED),
    "torch.utils._python_dispatch._disable_current_modes": ("inspecting a call unseen by dispatch modes", CONTAINED),
    "_masked_data": ("the values of a masked tensor", "masked tensors are not digested"),
    "_masked_mask": ("as _masked_data", "masked tensors are not digested"),
    "torch._is_functional_tensor": ("leaving out tensors without memory of their own", CONTAINED),
    "torch._ops.OpOverload": ("naming an operator in a bundle", CONTAINED),
    "torch._ops.OpOverloadPacket": ("naming an operator in a bundle", CONTAINED),
    "_opname": ("the name of an operator, to know what it writes to", CONTAINED),
    "_schema": ("which arguments an operator writes to", CONTAINED),
    "torch._C._VariableFunctions": ("naming a function in a bundle; so do _nn, _fft, _linalg and _special", "the step is not saved"),
    "_nn": ("as _VariableFunctions", "the step is not saved"),
    "_fft": ("as _VariableFunctions", "the step is not saved"),
    "_linalg": ("as _VariableFunctions", "the step is not saved"),
    "_special": ("as _VariableFunctions", "the step is not saved"),
    "torch._foreach_copy_": ("copying all parameters or gradients on a device in one launch", CONTAINED),
    "_batch_norm_with_update": ("as _native_batch_norm_legit", "as _native_batch_norm_legit"),
    "_local_scalar_dense": ("which values the program reads in a step that experiments are asked of", "it is not known that they are read"),
    "_native_batch_norm_legit": ("computing batch norm again without writing its statistics", "a step with batch norm is not asked"),
    "_params": ("a clone of LBFGS, which keeps a list of its parameters", "LBFGS is not cloned for an experiment"),
    "_numel_cache": ("as _params", "as _params"),
    # Process groups
    "_world": ("which process groups there are", "a stopped training does not know how long other ranks may wait for it"),
    "_device_types": ("as _world", "as _world"),
    "_get_backend": ("as _world", "as _world"),
    "_timeout": ("as _world", "as _world"),
    # Modules
    "_module_parameters": ("parameters that DistributedDataParallel has known from the start", "those of the model count instead"),
    "_global_forward_hooks": ("whether hooks of all modules run, which a replay runs again", "no replay"),
    "_global_forward_pre_hooks": ("as _global_forward_hooks", "no replay"),
    "_call_impl": ("calling a module as torch does, and knowing its frames in a traceback", NEEDED),
    "_compiled_call_impl": ("recognising modules that are compiled in place", NEEDED),
    "_modules": ("children of a module, without its own __getattr__", NEEDED),
    "_parameters": ("parameters of a module, without its own __getattr__", NEEDED),
    "_buffers": ("buffers of a module, without its own __getattr__", NEEDED),
    "_modules_": ("the names that dynamo gives to attributes of modules", "fewer names in compiled graphs"),
    "_parameters_": ("the names that dynamo gives to parameters", "fewer names in compiled graphs"),
    "_buffers_": ("the names that dynamo gives to buffers", "fewer names in compiled graphs"),
    "_get_name": ("the name of a module's class in sentences", CONTAINED),
    "_orig_mod": ("the module behind torch.compile(module)", "a compiled module is named as itself"),
    "_fsdp_wrapped_module": ("the module behind FSDP", "names contain the wrapper's"),
    "_init_sharded_param": ("comparing what ranks hold before fully_shard takes their parts", "not compared"),
    "_local_tensor": ("the part of a parameter that fully_shard gives a rank", "as _init_sharded_param"),
    "_compute_outputs": ("passing over the run of a pipeline's stage that finds out shapes", "its memory's values are watched as if they were the first batch"),
    "_compute_input_grads": ("as _compute_outputs", "as _compute_outputs"),
    "_backward_metadata_inference": ("as _compute_outputs", "as _compute_outputs"),
    "_manual_seed_impl": ("comparing the seeds of ranks", "not compared"),
    "_checkpoint_wrapped_module": ("the module behind a checkpoint wrapper", "names contain the wrapper's"),
    "_module": ("the module behind a wrapper", "names contain the wrapper's"),
    "torch.nn.modules.dropout._DropoutNd": ("recognising dropout of all dimensions", NEEDED),
    "_BatchNorm": ("recognising batch norms of all dimensions", NEEDED),
    "_get_clones": ("recognising layers that TransformerEncoder copies", "fewer facts about equal layers"),
    # Autograd
    "_version": ("whether a tensor was changed in place", NEEDED),
    "_base": ("whether a tensor is a view", "fewer facts"),
    "_backward_hooks": ("hanging a gradient hook on a tensor without the cost of a handle", NEEDED),
    "_register_hook_dict": ("telling autograd of that hook", NEEDED),
    "_post_accumulate_grad_hooks": ("what hangs on a parameter, for a replay", "no replay"),
    "_forward_cls": ("the class of a user's autograd function", "an exception is explained without the forward line"),
    "_cdata": ("whether two tensors share a storage", "no replay"),
    "_indices": ("the memory of a sparse tensor, for its check sum", "no replay"),
    "_sequence_nr": ("the order in which autograd nodes were made", "an exception is explained without the forward line"),
    "_saved_": ("what an autograd node keeps", "an exception is explained without the tensor"),
    "torch._C._autograd._unsafe_set_version_counter": ("putting values back without autograd's noticing", "no replay"),
    "_engine_run_backward": ("knowing the backward pass in a traceback", "an exception is explained less well"),
    "_CheckpointFrame": ("knowing a recomputed forward pass in a traceback", "an exception is explained less well"),
    # Data and optimizers
    "_BaseDataLoaderIter": ("knowing which samples a batch is made of", NEEDED),
    "_next_index": ("knowing which samples a batch is made of", NEEDED),
    "_dataset": ("the data set behind a loader's iterator", CONTAINED),
    "_per_optimizer_states": ("whether GradScaler has unscaled the gradients", CONTAINED),
    "_scale": ("the scale of GradScaler", CONTAINED),
    "_foreach_lerp_": ("recognising averages of weights", "fewer facts"),
    "_foreach_mul_": ("recognising averages of weights", "fewer facts"),
    # Compiled code
    "torch._C._dynamo.eval_frame": ("running our own functions uncompiled inside of compiled ones", NEEDED),
    "_FrameAction": ("as eval_frame", NEEDED),
    "_FrameExecStrategy": ("as eval_frame", NEEDED),
    "torch._dynamo.trace_rules": ("our own frames are not compiled where the user's are", "they are compiled, which takes time"),
    "torch._dynamo.disable": ("leaving our backward compiler out of a compiled backward pass", CONTAINED),
    "torch._dynamo.reset": ("compiling again what was compiled before a change of what is watched", CONTAINED),
    "torch._dynamo.backends.common": ("getting between AOTAutograd and the backend", "compiled code is not looked into"),
    "torch._dynamo.backends.common.aot_autograd": ("tensonde.inspect of compiled code", "it says that it cannot"),
    "torch._dynamo.config.skip_nnmodule_hook_guards": ("whether hooks that come late are noticed", CONTAINED),
    "torch._dynamo.symbolic_convert.InstructionTranslator": ("whose code is being compiled", CONTAINED),
    "torch._dynamo.utils": ("graph breaks and recompilations", CONTAINED),
    "torch._guards.TracingContext": ("guards, strides and outputs of the graph that is being compiled", CONTAINED),
    "torch._guards.detect_fake_mode": ("adding nodes to a graph that is being compiled", CONTAINED),
    "torch._inductor": ("telling inductor from other backends", "the backend's name is its function's"),
    "torch._inductor.config": ("whether inductor draws random numbers of its own", CONTAINED),
    "torch._inductor.compile_fx.compile_fx_inner": ("compiling parts of a graph, to find the node that departs", CONTAINED),
    "torch._inductor.decomposition.select_decomp_table": ("tensonde.inspect of compiled code", "it says that it cannot"),
    "_boxed_call": ("handing arguments over as AOTAutograd does", NEEDED),
    "_torchdynamo_orig_callable": ("the function behind a compiled one", "tensonde.inspect takes the compiled one"),
    "_to_copy": ("the name of an operator", "fewer nodes are watched"),
    "_unsafe_view": ("the name of an operator", "fewer nodes are watched"),
    "_c10d_functional": ("the namespace of operators that talk to other ranks, which are not run again", NEEDED),
    "_c10d_functional_autograd": ("as _c10d_functional", NEEDED),
    "_dtensor": ("as _c10d_functional", NEEDED),
    "_dynamo_source": ("the program's names for the inputs of compiled code", "they keep the compiler's names"),
    "_join_config": ("whether DistributedDataParallel joins ranks with fewer batches", "such ranks may be said to differ"),
    "_comm_hooks": ("whether a program reduces the gradients of DistributedDataParallel by itself", "its loss may be said to be divided twice"),
    "_saved_tensors": ("what an autograd node keeps, by the beginning of its attribute's name", "less memory is explained"),
    "_sync_buffers": ("when a rank waits for the buffers of rank 0", "such a wait has no name"),
    "torch._C._autograd._get_sequence_nr": ("which backward op belongs to which forward op, for `check --memory`", NEEDED),
    "torch._C._current_autograd_node": ("as _get_sequence_nr", NEEDED),
    "torch._C._has_storage": ("which tensors hold memory, for `check --memory`", CONTAINED),
    "torch._subclasses.fake_tensor.FakeTensorMode": ("trying smaller batches without memory after an out-of-memory error", CONTAINED),
    # tensonde.print
    "torch._higher_order_ops.effects._register_effectful_op": ("prints stay in the order of the program", "prints from compiled code may change places"),
    "torch._higher_order_ops.effects._EffectType": ("as _register_effectful_op", "prints from compiled code may change places"),
    "torch._tensor_str.PRINT_OPTS": ("printing a tensor as torch does", CONTAINED),
    "torch.nn.parallel.DistributedDataParallel._get_ddp_logging_data": ("the parts in which gradients are reduced", "the parts are not known"),
    "torch._tensor_str._tensor_str": ("printing a tensor as torch does", CONTAINED),
}  # fmt: skip


def missing() -> dict[str, str]:
    """The names that this release of torch does not have, and what happens without each. Those that are no whole path are not looked for."""
    return {
        name: consequence for name, (_, consequence) in NAMES.items() if name.startswith("torch.") and not _exists(name)
    }


def _exists(name: str) -> bool:
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:k]))
        except ImportError:
            continue
        return all((found := getattr(found, part, None)) is not None for part in parts[k:])
    return False


def in_order(op: Any) -> None:
    """Tells the compiler that calls of this operator (an overload) stay in the order of the program."""
    try:
        from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

        _register_effectful_op(op, _EffectType.ORDERED)
    except Exception as problem:  # another release: then they may change places
        logging.getLogger("tensonde.adapters").debug("prints from compiled code may change places: %r", problem)
