"""The programs in `benchmark/`, found as they find one another and, by the package's name, as methods are."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "benchmark")]
