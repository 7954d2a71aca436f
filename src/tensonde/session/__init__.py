"""Inside the training process and framework-neutral: what to observe, when to stop, and what must never escape."""
