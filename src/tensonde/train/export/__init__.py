"""A recording as other programs know it: TensorBoard event files, a W&B run, CSV, Parquet. Needs no torch."""
