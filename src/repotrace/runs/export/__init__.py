"""Runs and reports as files for other programs and people: JSON, Markdown, HTML, bundles."""
