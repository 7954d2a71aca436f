"""What rules share: walks through a trace, and what losses, weights and gradients did over the steps."""
