"""The operating system: the only place that starts processes, and the only one that runs git."""
