"""What writes a run down while it happens."""
