"""What is known of a training beside its tensors: facts.json."""
