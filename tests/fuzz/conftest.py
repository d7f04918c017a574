from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    # pytest's importlib mode does not, and `tests.fuzz` is not a package.
    sys.path.insert(0, str(ROOT))
