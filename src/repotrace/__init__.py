"""RepoTrace: a flight recorder for failures, of commands and of coding agents."""

from repotrace._version import __version__

__all__ = ["__version__"]
