"""MindSpore under Tensonde. `adapter` is what others know; everything else is reached through it."""
