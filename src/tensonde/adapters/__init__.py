"""The only place that imports a framework."""
