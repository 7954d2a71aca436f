"""The exception that ends a program."""
