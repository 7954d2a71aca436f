"""What a path is: told by its content, not by its name."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tensonde.errors import RecordingError
from tensonde.store.damage import open_file, reason, shortened
from tensonde.store.dump.layout import is_dump
from tensonde.store.format import MANIFEST
from tensonde.store.sources import mindspore_ckpt, mindspore_dump, msprobe, npy, parquet, safetensors, torch_zip
from tensonde.store.sources.source import TensorSource

INDEX = ".index.json"
KNOWN = (
    "Tensonde reads its own recordings and dumps, MindSpore's and msprobe's dumps, and checkpoints of torch, safetensors, npz, "
    "npy, Parquet and MindSpore"
)


def open_source(path: str | Path, rank: int | None = None) -> TensorSource:
    """The source at `path`, of all ranks or of one. Its entries are read now, so that damage is heard of here.

    Raises RecordingError, never anything else."""
    given = Path(path)
    try:
        source = _folder(given) if given.is_dir() else _file(given)
        entries = source.entries
    except (OSError, ValueError) as problem:  # a name that is too long, or no name
        raise RecordingError(f"{shortened(given)} cannot be opened: {reason(problem)}.") from None
    if rank is not None:
        if entries and rank not in source.ranks:
            raise RecordingError(f"{given} has no rank {rank}; it has {', '.join(map(str, source.ranks))}.")
        source.entries = [entry for entry in entries if entry.rank == rank]
    return source


def _file(path: Path) -> TensorSource:
    if not path.exists():
        found = _recording(path)
        if found is not None:
            return found
        raise RecordingError(f"{path} does not exist.")
    with open_file(path) as file:
        start = file.read(64)
    if not start:
        raise RecordingError(f"{path} is empty.")
    if path.name.endswith(INDEX):
        from tensonde.store.sources.sharded import Sharded

        return Sharded(path)
    if start[:4] == b"PK\x03\x04":
        return npy.NpzFile(path) if _is_npz(path) else torch_zip.TorchFile(path)
    if start.startswith(npy.MAGIC):
        return npy.NpyFiles(path)
    if parquet.looks_like(path, start):
        return parquet.ParquetFile(path)
    if path.name == "dump.json" and msprobe.looks_like(path):
        return msprobe.MsprobeDump(path)
    if safetensors.looks_like(start) or path.suffix == safetensors.SUFFIX:
        return safetensors.SafetensorsFile(path)
    if torch_zip.is_legacy(start):
        raise torch_zip.refuse_legacy(path)
    if mindspore_ckpt.looks_like(path):
        return mindspore_ckpt.MindSporeCheckpoint(path)
    if start[:1] == b"\x80":
        raise torch_zip.refuse_legacy(path)
    raise RecordingError(f"{path} is of no format that is known here; {KNOWN}.")


def _is_npz(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".npy") for name in archive.namelist())
    except Exception:  # zipfile raises what it likes
        if path.suffix in (".npz", ".pt", ".pth", ".bin", ".ckpt"):
            raise RecordingError(f"{path} is truncated or damaged: its directory at the end cannot be read.") from None
        return False


def _folder(path: Path) -> TensorSource:
    if is_dump(path):
        from tensonde.store.sources.dumped import TensondeDump

        return TensondeDump(path)
    recording = _recording(path)
    if recording is not None:
        return recording
    inner = [folder for folder in sorted(path.iterdir()) if folder.is_dir() and is_dump(folder)]
    if len(inner) == 1:
        return _folder(inner[0])
    if len(inner) > 1:
        raise RecordingError(
            f"{path} holds several dumps: {', '.join(folder.name for folder in inner)}; give one of them."
        )
    if any(msprobe.looks_like(file) for file in path.rglob("dump.json")):
        return msprobe.MsprobeDump(path)
    if mindspore_dump.looks_like(path):
        return mindspore_dump.MindSporeDump(path)
    indices = sorted(path.glob(f"*{INDEX}"))
    if indices:
        from tensonde.store.sources.sharded import Sharded

        return Sharded(indices[0])
    weights = [
        file
        for suffix in ("safetensors", "bin", "pt", "pth", "ckpt", "npz")
        for file in sorted(path.glob(f"*.{suffix}"))
    ]
    if len(weights) == 1:
        return _file(weights[0])
    if weights:
        raise RecordingError(
            f"{path} holds {len(weights)} weight files and no index (such as model.safetensors{INDEX}) that says what belongs "
            "together; give one of the files."
        )
    if any(path.rglob("*.npy")):
        return npy.NpyFiles(path)
    raise RecordingError(f"{path} holds nothing that is known here; {KNOWN}.")


def _recording(path: Path) -> TensorSource | None:
    """Where a recording is meant: its folder, a rank's, a run's bare name, or a folder of runs for its newest."""
    from tensonde.store.resolve import RUNS, runs_in

    given = (path, path.absolute().parent, RUNS / path)
    if not any((folder / MANIFEST).is_file() for folder in given) and not runs_in(path / RUNS) and not runs_in(path):
        return None
    from tensonde.store.reader import Recording
    from tensonde.store.sources.recorded import RecordedValues

    return RecordedValues(path, Recording.open(path))
