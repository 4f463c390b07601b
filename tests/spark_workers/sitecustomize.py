"""Run by Python at its start: import PySpark from where it is installed, not from the archive inside it.

Spark puts `pyspark.zip` first on the path of its Python workers. What is imported from there is compiled anew
in each process, which takes a second of CPU; the installed package is the same and has bytecode.
"""

from __future__ import annotations

import sys

_ARCHIVES = ("/python/lib/pyspark.zip", "/python/lib/py4j-")

sys.path[:] = [entry for entry in sys.path if not any(name in entry for name in _ARCHIVES)]
