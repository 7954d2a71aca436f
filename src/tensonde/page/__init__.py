"""A recording, or one traced call, as a page that needs nothing else: `tensonde show --html` and `tensonde.view`."""
