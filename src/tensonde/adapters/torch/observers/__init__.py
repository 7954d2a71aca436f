"""What is known of a training beside its tensors: one observer per subject; `facts` gathers what they saw."""
