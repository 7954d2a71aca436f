"""Tensors from any source into another format: npy, npz, safetensors, Parquet, or a dump of Tensonde's."""
