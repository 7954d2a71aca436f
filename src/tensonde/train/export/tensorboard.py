"""TensorBoard event files, through TensorBoard's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensonde.store.reader import Rank, Recording
from tensonde.train.export.series import points, texts
from tensonde.train.extras import need


def to_tensorboard(recording: Recording, folder: Path, *, sites: str, fields: Sequence[str]) -> int:
    """How many numbers were written. Each process of a run has a folder of its own, where there are several."""
    module = need("tensorboard.summary.writer.event_file_writer", extra="train", what="the export to TensorBoard")
    written = 0
    for rank in recording.ranks:
        writer = module.EventFileWriter(str(folder / rank.name if len(recording.ranks) > 1 else folder))
        try:
            written += _write(writer, recording, rank, sites, fields)
        finally:
            writer.close()
    return written


def _write(writer: Any, recording: Recording, rank: Rank, sites: str, fields: Sequence[str]) -> int:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    written, time = 0, 0.0
    for point in points(recording, rank, sites, fields):
        value = Summary.Value(tag=point.name, simple_value=point.value)
        writer.add_event(Event(wall_time=point.time, step=point.step, summary=Summary(value=[value])))
        written, time = written + 1, point.time
    for number, (step, text) in enumerate(texts(recording, rank)):
        summary = Summary(value=[_text(f"findings/{number}", text)])
        writer.add_event(Event(wall_time=time, step=step, summary=summary))
    return written


def _text(tag: str, text: str) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.plugins.text.plugin_data_pb2 import TextPluginData

    content = TextPluginData(version=0).SerializeToString()
    plugin = SummaryMetadata.PluginData(plugin_name="text", content=content)
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()], tensor_shape=shape)
    return Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=tensor)
