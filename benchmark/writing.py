"""Result files: `benchmark/results/<name>_<hardware>_<yyyymm>.json` and `.md`, each naming what it was made with."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

from openauc._files import write_text
from openauc.environment import cores, cpu_name, environment

RESULTS = Path(__file__).parent / "results"


def hardware_name() -> str:
    """Short name for files, such as ``amd-epyc-2c``."""
    words = re.sub(r"\(.*?\)|CPU|Processor|@.*", "", cpu_name())
    return f"{re.sub(r'[^a-z0-9]+', '-', words.lower()).strip('-')}-{cores()}c"


def write_results(name: str, content: dict[str, Any], text: str) -> None:
    """Write the content as JSON and the text, which begins with a heading, as Markdown; print the text."""
    facts = environment()
    heading, _, body = text.strip().partition("\n")
    told = f"Written by `{Path(sys.argv[0]).name}` with {', '.join(f'{key} {value}' for key, value in facts.items())}."
    page = f"{heading}\n\n{told}\n\n{body.strip()}\n"
    stem = RESULTS / f"{name}_{hardware_name()}_{time.strftime('%Y%m')}"
    RESULTS.mkdir(exist_ok=True)
    write_text(stem.with_suffix(".json"), json.dumps({"environment": facts, **content}, indent=1) + "\n")
    write_text(stem.with_suffix(".md"), page)
    print(page)
