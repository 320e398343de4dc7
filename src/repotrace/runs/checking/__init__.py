"""What a check compares, and how it is told."""
