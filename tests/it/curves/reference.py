"""Writes event files with TensorBoard's own code, in every encoding of a number that its
writers have, and prints as JSON what its EventAccumulator reads of a directory, every point.

    reference.py write DIRECTORY
    reference.py read DIRECTORY
"""

import json
import pathlib
import struct
import sys

import numpy
from tensorboard.backend.event_processing import event_accumulator, tag_types
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

SCALARS = summary_pb2.SummaryMetadata(plugin_data={"plugin_name": "scalars"})


def tensors(value):
    """The same number in the encodings that writers use, by name."""
    content = tensor_util.make_tensor_proto(numpy.float32(value))
    assert content.float_val or content.tensor_content
    return {
        "float/val": tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[value]),
        "float/content": tensor_pb2.TensorProto(
            dtype=types_pb2.DT_FLOAT, tensor_content=numpy.float32(value).tobytes()
        ),
        "double/val": tensor_pb2.TensorProto(dtype=types_pb2.DT_DOUBLE, double_val=[value]),
        "double/content": tensor_pb2.TensorProto(
            dtype=types_pb2.DT_DOUBLE, tensor_content=numpy.float64(value).tobytes()
        ),
        "half/content": tensor_pb2.TensorProto(
            dtype=types_pb2.DT_HALF, tensor_content=numpy.float16(value).tobytes()
        ),
        "int/val": tensor_pb2.TensorProto(dtype=types_pb2.DT_INT32, int_val=[int(value)]),
        "long/val": tensor_pb2.TensorProto(dtype=types_pb2.DT_INT64, int64_val=[int(value) - 2**40]),
        "made": tensor_util.make_tensor_proto(numpy.float32(value)),
    }


def write(root):
    for run in [".", "train", "validation/deep"]:
        writer = EventFileWriter(str(root / run))
        for step in range(300):
            wall_time = 1_700_000_000 + step * 0.123456789
            value = (step * 37 % 101) * 0.31 - 3
            values = [summary_pb2.Summary.Value(tag="simple", simple_value=value)]
            for tag, tensor in tensors(value).items():
                metadata = SCALARS if step == 0 else None
                values.append(summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=metadata))
            summary = summary_pb2.Summary(value=values)
            writer.add_event(event_pb2.Event(wall_time=wall_time, step=step * 10, summary=summary))
        writer.close()


def bits(number):
    """As a whole number: not everybody reads the digits of a float exactly."""
    return struct.unpack("<q", struct.pack("<d", number))[0]


def read(root):
    runs = {}
    files = sorted(root.rglob("*tfevents*"))
    for directory in sorted({file.parent for file in files}):
        sizes = {tag_types.SCALARS: 0, tag_types.TENSORS: 0}
        accumulator = event_accumulator.EventAccumulator(str(directory), size_guidance=sizes)
        accumulator.Reload()
        tags = {}
        for tag in accumulator.Tags()["scalars"]:
            tags[tag] = [[event.step, bits(event.wall_time), bits(event.value)] for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["tensors"]:
            tags[tag] = [
                [event.step, bits(event.wall_time), bits(tensor_util.make_ndarray(event.tensor_proto))]
                for event in accumulator.Tensors(tag)
            ]
        runs[str(directory.relative_to(root))] = tags
    json.dump(runs, sys.stdout)


{"write": write, "read": read}[sys.argv[1]](pathlib.Path(sys.argv[2]))
