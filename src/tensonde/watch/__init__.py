"""The watch language and the engine: site patterns, conditions, watchpoints, and from digests to hits.

Kept empty: `tensonde.watch` is also the function that a script calls, which takes the name in `tensonde/__init__.py`.
"""
