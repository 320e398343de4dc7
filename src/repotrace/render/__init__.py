"""Records as Rich renderables. Nothing here prints, and captured text is never markup."""
