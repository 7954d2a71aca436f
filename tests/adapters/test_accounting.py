"""What Tensonde's Python costs: the time that somebody looks at a stop is none of it."""

from __future__ import annotations

from tensonde.adapters.torch.run.accounting import Accounting


def test_a_stop_does_not_count() -> None:
    accounting = Accounting(lambda tensor, hook: tensor.register_hook(hook))
    accounting.finish_step(full=True)
    assert accounting.timing
    accounting.calls, accounting.leave_ns = 10, 60_000_000_000  # a minute at one of ten calls
    assert accounting.finish_step(full=True, stopped=True) == 0
    assert accounting.timing, "the next step is timed in its place"
    while accounting.timing:
        accounting.calls, accounting.leave_ns = 10, 50_000
        assert accounting.finish_step(full=True) == 50_000
    accounting.calls = 10  # and from now on, the average stands for what is not timed
    assert accounting.finish_step(full=True) == 50_000
