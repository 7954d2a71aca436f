"""The hub: live sessions and recordings behind one port, for browsers, terminals and scripts. It imports no framework and no session."""
