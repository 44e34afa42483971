"""Every Python process that the tests start, directly or through Spark, runs this first: its folder is in PYTHONPATH.

Spark's Python processes take PySpark from an archive of its sources, and each compiles them anew, which takes longer
than all else that a process begins with. Where PySpark is installed it is compiled.
"""

import sys
from pathlib import Path

if any(Path(folder, "pyspark", "__init__.py").is_file() for folder in sys.path if not folder.endswith(".zip")):
    sys.path[:] = [each for each in sys.path if not each.endswith("/pyspark.zip")]
