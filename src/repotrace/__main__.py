"""The entry: answers what needs no imports, then hands over to the command line."""

from __future__ import annotations

import sys

from repotrace._version import __version__


def main() -> None:
    """Run the command line of this process and exit."""
    if sys.argv[1:] == ["--version"]:
        print(f"repotrace {__version__}")
        return
    if sys.argv[1:] == ["version"]:
        print(__version__)
        return
    from repotrace.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
