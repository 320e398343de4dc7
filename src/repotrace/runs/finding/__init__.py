"""What is told of the step that broke a test."""
