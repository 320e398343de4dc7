"""Makes docs/run-export.schema.json out of the code: run it as a script to write it anew."""

from __future__ import annotations

import json
from pathlib import Path

from repotrace.runs.export.shape import json_schema

PAGE = Path(__file__).parents[1] / "docs" / "run-export.schema.json"


def page() -> str:
    """The file as the code wants it."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
