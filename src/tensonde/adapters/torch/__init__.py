"""PyTorch: what runs is observed through `nn.Module.__call__`, tensor hooks, and the optimizers' own hooks."""
