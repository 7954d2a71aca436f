"""Two recordings, dumps or checkpoints to a verdict. Needs no framework."""
