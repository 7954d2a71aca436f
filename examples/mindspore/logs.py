"""What MindSpore logs, by level and into a file.

The log variables of seeds 000 and 004. Tensonde's own log has variables of its own: docs/logs.md.
"""

import glob
import os
import subprocess
import sys

SCRIPT = "import mindspore as ms; ms.jit(lambda x: x + 1)(ms.Tensor(1.0))"


def logged(**variables):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, **variables}, capture_output=True, text=True
    )
    return any(line.startswith("[INFO]") for line in (done.stdout + done.stderr).splitlines())


print("GLOG_v=1 logs information:", logged(GLOG_v="1"))
print("GLOG_v=3 does:", logged(GLOG_v="3"))
print("with GLOG_logtostderr=0 on the screen:", logged(GLOG_v="1", GLOG_logtostderr="0", GLOG_log_dir="logs"))
print("in files:", bool([path for path in glob.glob("logs/**/*", recursive=True) if os.path.isfile(path)]))
