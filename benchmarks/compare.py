"""Two large checkpoints through `tensonde compare`: share of the disk's read bandwidth, and memory.

python benchmarks/compare.py FOLDER [GIGABYTES]     writes twice as much there, and removes it again

The page cache is emptied of the files before each read (posix_fadvise). The bandwidth to hold it against is that of reading
both files from begin to end, 8 MiB at a time, two at a time as the comparison does. All tensors differ in their last bits,
which is the expensive case; equal ones are faster.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

TENSOR = 256 << 20
CHILD = """
import sys, time, json
from tensonde.compare.sources import compare_sources
from tensonde.store.sources import open_source
began, spent = time.perf_counter(), time.process_time()
with open_source(sys.argv[1]) as a, open_source(sys.argv[2]) as b:
    verdict = compare_sources(a, b)
print(json.dumps({"seconds": time.perf_counter() - began, "cpu": time.process_time() - spent, "verdict": verdict.verdict,
                  "peak_mb": int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024, "bytes": verdict.coverage["bytes"]}))
"""


def write(path: Path, gigabytes: float, bump: bool) -> None:
    count = max(1, int(gigabytes * (1 << 30) / TENSOR))
    header = {
        f"layers.{k}.weight": {"dtype": "F32", "shape": [TENSOR // 4], "data_offsets": [k * TENSOR, (k + 1) * TENSOR]}
        for k in range(count)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = np.random.default_rng(0).standard_normal(TENSOR // 4, np.float32).view(np.uint32) ^ np.uint32(bump)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(count):
            file.write(values.data)
        file.flush()
        os.fsync(file.fileno())


def forget(*paths: Path) -> None:
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: Path) -> int:
    total, piece = 0, bytearray(8 << 20)
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(piece):
            total += got
    return total


def main(folder: Path, gigabytes: float) -> None:
    a, b = folder / "a.safetensors", folder / "b.safetensors"
    try:
        write(a, gigabytes, False)
        write(b, gigabytes, True)
        plain, ours = [], []
        for _ in range(1 if gigabytes > 8 else 3):  # interleaved, because others use this machine, too
            forget(a, b)
            began = time.perf_counter()
            with ThreadPoolExecutor(2) as pool:
                total = sum(pool.map(read, (a, b)))
            plain.append(total / (time.perf_counter() - began))
            forget(a, b)
            done = subprocess.run(
                [sys.executable, "-c", CHILD, str(a), str(b)], capture_output=True, text=True, check=True
            )
            result = json.loads(done.stdout)
            ours.append(result["bytes"] / result["seconds"])
            print(f"read {plain[-1] / 1e6:.0f} MB/s, compare {ours[-1] / 1e6:.0f} MB/s, "
                  f"{result['cpu'] / result['bytes'] * 1e9:.2f} CPU s/GB, peak {result['peak_mb']:.0f} MB, {result['verdict']}", flush=True)  # fmt: skip
        print(f"{max(ours) / max(plain) * 100:.0f} % of the read bandwidth (best of each)")
    finally:
        a.unlink(missing_ok=True)
        b.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 2.0)
