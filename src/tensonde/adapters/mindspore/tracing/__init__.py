"""A step op by op."""
