"""What the hub asks of a training, and who answers it in which thread."""
