"""The user's Python: its lines, frames and syntax, and where a value or an object comes from.

Nothing here runs the user's code, and nothing but the standard library and `tensonde.model` is imported.
"""
