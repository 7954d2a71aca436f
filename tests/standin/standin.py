"""A stand-in accelerator: `import standin`, then `device="standin"`. Built when it is first imported (about a minute).

Every stream is a thread with a queue, in which the CPU's kernels run behind the program: copies to pinned memory
arrive when their turn has come, errors of kernels surface where somebody waits, memory is limited. See README.md.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import pathlib
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.cpp_extension import _get_build_directory, load

SOURCE = pathlib.Path(__file__).with_name("standin.cpp")
_known_by = SOURCE.read_bytes() + torch.__version__.encode() + torch.__file__.encode()  # what it was built from
_name = f"standin_{hashlib.sha256(_known_by).hexdigest()[:12]}"


def _built() -> Any:
    """One process builds at a time. Torch's own lock stays behind when a build is killed, and torch would wait for it for ever."""
    folder = pathlib.Path(_get_build_directory(_name, False))
    with open(folder / "building", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (folder / "lock").unlink(missing_ok=True)
        return load(_name, [str(SOURCE)], extra_cflags=["-O0", "-w"], verbose=False)


ext: Any = _built()
atexit.register(ext.stop)

ext.set_delay(float(os.environ.get("STANDIN_DELAY", "0")))


class Device:
    """For `with torch.standin.device(1)`."""

    def __init__(self, index: Any) -> None:
        self._index = torch.device(index).index if not isinstance(index, int) else index
        self._before = 0

    def __enter__(self) -> None:
        self._before = ext.current_device()
        ext.set_device(self._index or 0)

    def __exit__(self, *problem: object) -> None:
        ext.set_device(self._before)


def _index(device: Any) -> int:
    return device if isinstance(device, int) else torch.device(device).index or 0


def _module() -> types.ModuleType:
    module: Any = types.ModuleType("torch.standin")
    module.is_available = module.is_initialized = lambda: True
    module.device_count, module.current_device, module.set_device = ext.device_count, ext.current_device, ext.set_device
    module.device = Device
    module.Stream, module.Event = torch.Stream, torch.Event
    module.current_stream = lambda device=None: torch.accelerator.current_stream(device)
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = module.manual_seed = ext.seed
    module.get_rng_state = lambda device=0: ext.random_state(_index(device))
    module.set_rng_state = lambda state, device=0: ext.set_random_state(state, _index(device))
    module.is_current_stream_capturing = ext.capturing
    module.synchronize = lambda device=None: ext.synchronize(-1)
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    return module


torch.utils.rename_privateuse1_backend("standin")
torch._register_device_module("standin", _module())
torch.utils.generate_methods_for_privateuse1_backend()


def _mse_loss(a: torch.Tensor, b: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    found = (a - b).square()
    return found if reduction == 0 else found.mean() if reduction == 1 else found.sum()


def _mse_loss_backward(grad: torch.Tensor, a: torch.Tensor, b: torch.Tensor, reduction: int) -> torch.Tensor:
    return (a - b) * (2.0 / a.numel() if reduction == 1 else 2.0) * grad


_ops = torch.library.Library("aten", "IMPL")  # the CPU's kernels for these want to resize what they are given
_ops.impl("mse_loss", _mse_loss, "PrivateUse1")
_ops.impl("mse_loss_backward", _mse_loss_backward, "PrivateUse1")


def counts() -> Counter[str]:
    """Since the process began: launches, synchronisations, host_reads, copies_to_host, bytes_to_host, ..."""
    return Counter(ext.counts())


def memory(device: int = 0) -> tuple[int, int]:
    """Bytes in use, and at most so far."""
    used, peak, _ = ext.memory(device)
    return used, peak


@contextlib.contextmanager
def counting() -> Iterator[Counter[str]]:
    """What happens inside, known afterwards."""
    before, found = counts(), Counter[str]()
    try:
        yield found
    finally:
        found.update(counts() - before)


class Graph:
    """What was launched inside of `captured`: nothing is done before it is replayed."""

    launches = 0
    replay: Callable[[], None]


@contextlib.contextmanager
def captured() -> Iterator[Graph]:
    """As `torch.cuda.graph` does: launches are taken down, and whoever waits or reads a value gets an error. Its memory is never given back."""
    ext.synchronize(-1)
    ext.begin_capture()
    graph = Graph()
    try:
        yield graph
    finally:
        graph.launches, graph.replay = ext.end_capture()


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Nothing that was launched is done before somebody waits for it."""
    ext.hold(True)
    try:
        yield
    finally:
        ext.hold(False)


@contextlib.contextmanager
def limited(bytes: int, device: int = 0) -> Iterator[None]:
    """No more memory than this."""
    before = ext.memory(device)[2]
    ext.set_limit(bytes, device)
    try:
        yield
    finally:
        ext.set_limit(before, device)


@contextlib.contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """`listener` is called wherever the host waits for the device, with the kind of waiting."""
    ext.on_wait(listener)
    try:
        yield
    finally:
        ext.on_wait(None)
