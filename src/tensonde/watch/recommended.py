"""The watch set that is on by default: few conditions, each sure, silent on healthy training.

What healthy training does, and so does not alarm here:

- A tensor may hold -Inf (attention masks, masked logits), so -Inf counts only in the loss, gradients and
  weights. Inputs and buffers may hold anything from the start. Ops appear only in traces, where a NaN may be
  masked afterwards.
- A module may put out +Inf by design; it alarms only when it comes after outputs without.
- Under fp16 loss scaling gradients overflow now and then; only a row of 20 overflows alarms (`scaled`).
- Gradients get tiny or zero and weights and loss stop moving when a model has converged; gradients are zero
  for a LoRA A matrix at step 0 and for experts without tokens. So vanishing has no watchpoint, and "stuck"
  means from the start, for 100 observations, at a weight matrix whose module put something out (`fed`), with
  a loss that is not 0.
- Gradients grow under OneCycle and in a GAN, losses may be negative and wander: running away is a
  thousandfold growth that lasts.
- ReLU may be very sparse, and a hinge all zero once its loss is; dead means 100 % zeros, 50 times in a row,
  with a loss that is not 0.
"""

from __future__ import annotations

from tensonde.model.watchpoint import Action, Watchpoint

CONDITIONS = (
    "loss_overflow",
    "output_nan",
    "output_overflow",
    "weight_overflow",
    "gradient_overflow",
    "buffer_nan",
    "gradient_runaway",
    "loss_runaway",
    "weight_runaway",
    "loss_stuck",
    "weight_stuck",
    "gradient_stuck",
    "dead(n=50) and not abs(loss) <= 1e-06",
)


def recommended(first_id: int = 1, action: Action = "report") -> list[Watchpoint]:
    """The default set, ids from `first_id` on. Conditions pick sites by their facts, so all watch `**`."""
    return [Watchpoint(first_id + i, "**", condition, action, "recommended") for i, condition in enumerate(CONDITIONS)]
