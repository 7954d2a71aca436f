"""A recording on disk: append-only, readable while it is written and after a kill -9.

`claim` makes the folders, `writer` fills one rank's folder, `reader` opens a run, `query` asks it in SQL.
Nothing is imported here: a program that only completes a path must not pay for pyarrow.
"""
