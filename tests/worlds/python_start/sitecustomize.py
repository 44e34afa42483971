"""Every Python process that the tests start, directly or through Spark, runs this first: its folder is in PYTHONPATH.

Spark puts an archive of PySpark's sources first on the path, and Python compiles them again in every process: most of
its start-up time. The installed package is already compiled.
"""

import sys
from pathlib import Path

if any(Path(folder, "pyspark", "__init__.py").is_file() for folder in sys.path if not folder.endswith(".zip")):
    sys.path[:] = [each for each in sys.path if not each.endswith("/pyspark.zip")]
