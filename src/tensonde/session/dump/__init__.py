"""What to dump: the settings, as a file or the command line gives them, and the choice of tensors that follows from them."""
