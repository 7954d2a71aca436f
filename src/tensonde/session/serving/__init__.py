"""The hub's requests to a training: `requests` is the table, `service` runs it."""
