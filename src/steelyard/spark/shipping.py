"""How the data source reaches Spark's workers, and what a worker without Steelyard says.

Spark pickles the data source, its readers and its writers, and unpickles them in Python workers on
other machines. Pickle stores a class as the name of its module; where Steelyard is missing, all
that is left of this at the driver is "No module named 'steelyard'" in a long stack trace. The
classes of `Shipped` are therefore pickled as a call of a function that travels in full: it imports
the class, or raises an ImportError with one line that says which Python lacks what, and the cure.
"""

from __future__ import annotations

import copyreg
from abc import ABCMeta
from collections.abc import Callable
from typing import Any

__all__ = ["NOT_IMPORTED", "Shipped"]

NOT_IMPORTED = "ImportError: format rocketmq: "
"""What the line begins with in the worker's traceback."""


class Shipped(ABCMeta):
    """The metaclass of everything that Spark sends to workers.

    class RocketMQReader(DataSourceReader, metaclass=Shipped): ...
    """


def _importer() -> Callable[[str, str], Any]:
    """Return a function that cloudpickle stores in full, because no module has it as a member."""

    def imported(module: str, name: str) -> Any:
        # Nothing but the standard library is certain to be here.
        import importlib
        import socket
        import sys

        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            cause = error
        raise ImportError(
            f"format rocketmq: {sys.executable} on {socket.gethostname()} cannot import Steelyard"
            f" ({cause}). Install it there, in the driver's version, or send it with the job: see"
            " `steelyard pipeline archive --help`."
        )

    return imported


def _reduced(shipped: Shipped) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
    return _importer(), (shipped.__module__, shipped.__qualname__)


copyreg.pickle(Shipped, _reduced)
