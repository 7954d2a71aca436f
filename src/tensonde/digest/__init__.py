"""What a digest is, and the reduction of a tensor to one."""

from tensonde.digest.kernel import Block, Tap, kernel_name, rows_of
from tensonde.digest.layout import DTYPES, ROW

__all__ = ["DTYPES", "ROW", "Block", "Tap", "kernel_name", "rows_of"]
