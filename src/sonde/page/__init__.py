"""A recording, or one traced call, as a page that needs nothing else: `sonde show --html` and `sonde.view`."""
