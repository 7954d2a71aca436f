"""Where a training may stop, and what a debugger may ask of it then."""
