"""Hooks of agents: in their settings, and what one does when it is called."""
