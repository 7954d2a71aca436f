"""The hub's endpoints, one file a subject."""
