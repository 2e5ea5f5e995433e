"""Who reads numbers from tensors: on a GPU each of them would have to wait for all that was asked of it before."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

COPIES = {Tensor.tolist, Tensor.numpy, Tensor.cpu}


class _Numbers(TorchDispatchMode):
    """Notes what item(), float(), bool() and an if come down to."""

    def __init__(self, reads):
        super().__init__()
        self.reads, self.heeded = reads, True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.heeded and func is torch.ops.aten._local_scalar_dense.default:
            self.reads.append("number")
        return func(*args, **(kwargs or {}))


class _Copies(TorchFunctionMode):
    """Notes whole tensors taken to Python or numpy, which on a CPU come down to nothing."""

    def __init__(self, reads):
        super().__init__()
        self.reads = reads

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in COPIES:
            self.reads.append(func.__name__)
        return func(*args, **(kwargs or {}))


@contextmanager
def device_reads() -> Iterator[list[str]]:
    """One entry for each read meanwhile.

    Those of optimisers are left out: Adam keeps the count of its steps in tensors on the CPU, wherever the parameters
    are, and reads them.
    """
    reads: list[str] = []
    numbers = _Numbers(reads)

    def heed(value):
        def hook(optimizer, args, kwargs):
            numbers.heeded = value

        return hook

    hooks = register_optimizer_step_pre_hook(heed(False)), register_optimizer_step_post_hook(heed(True))
    try:
        with _Copies(reads), numbers:
            yield reads
    finally:
        for hook in hooks:
            hook.remove()
