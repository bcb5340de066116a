"""What a task leaves in Spark's Python process: less work for the garbage collection behind every task.

Spark's daemon collects all garbage after each task, before the process takes the next one (`manager` of
pyspark.daemon). It looks at the modules that are loaded each time, with pyarrow and numpy 100 000 objects:
longer than the task of a small micro-batch takes. They stay as long as the process, so that once is enough.
"""

from __future__ import annotations

import gc
import os
import sys

_done_in: int | None = None


def exempt_loaded_modules() -> None:
    """Leaves what is alive now out of later collections (gc.freeze); once in a process of the daemon, behind a task.

    Garbage is collected before. What is left out goes as ever when nobody refers to it any more; only a cycle of it
    stays.
    """
    global _done_in
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if _done_in != os.getpid() and main is not None and main.name == "pyspark.daemon":
        _done_in = os.getpid()
        gc.collect()
        gc.freeze()
