"""The watch set that is on by default: few conditions, each sure, silent on healthy training.

What healthy training does, and so does not alarm here:

- A tensor may hold -Inf (attention masks, masked logits), so -Inf counts only in the loss, gradients and weights.
  Inputs and buffers may hold anything from the start; ops appear only in traces, where NaN may be masked afterwards.
- A module may put out +Inf by design; it alarms only when it comes after outputs without.
- Under fp16 loss scaling gradients overflow now and then; only a row of 20 overflows alarms (`scaled`).
- Gradients get tiny when a model has converged, zero for a LoRA A matrix at step 0 and for experts without tokens,
  and grow under OneCycle or in a GAN: vanishing has no watchpoint, zero must last 100 observations of a weight
  whose module was called with something (`fed`) and whose loss is not 0, and growth must be a thousandfold and last.
- ReLU may be very sparse; dead means 100 % zeros, 50 times in a row. A loss may be negative and wander (WGAN).
"""

from __future__ import annotations

from sonde.model.watchpoint import Action, Watchpoint

CONDITIONS = (
    "loss_overflow",
    "output_nan",
    "output_overflow",
    "weight_overflow",
    "gradient_overflow",
    "buffer_nan",
    "gradient_runaway",
    "loss_runaway",
    "loss_stuck",
    "weight_stuck",
    "gradient_stuck",
    "dead(n=50)",
)


def recommended(first_id: int = 1, action: Action = "report") -> list[Watchpoint]:
    """The default set, with ids from `first_id` on. Every condition picks its sites by their facts, so all watch `**`."""
    return [
        Watchpoint(first_id + i, "**", condition, action, "recommended")
        for i, condition in enumerate(CONDITIONS)
    ]
