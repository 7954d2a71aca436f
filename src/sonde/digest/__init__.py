"""What a digest is, and the reduction of a tensor to one."""

from sonde.digest.kernel import Block, Tap, kernel_name, rows_of
from sonde.digest.layout import DTYPES, ROW

__all__ = ["DTYPES", "ROW", "Block", "Tap", "kernel_name", "rows_of"]
