"""Tensonde for editors: an adapter of the Debug Adapter Protocol over a hub (docs/editors.md)."""
