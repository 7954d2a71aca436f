"""Where a debugger may stop, and the values it may ask for."""
