"""One training as the adapter sees it: modules and their names, steps, rests, costs."""
