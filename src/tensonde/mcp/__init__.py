"""Tensonde for coding agents: tools, resources and prompts of the Model Context Protocol (docs/agents.md)."""
