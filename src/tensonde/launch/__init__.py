"""Trainings under Tensonde: `supervise` starts one, and `child` runs inside of it. `child` stays light."""
