"""Opens a model in ONNX's format, one's own or somebody else's, in ONNX Runtime.

Such a file is no program, but it may name other files: weights that lie beside it or anywhere else, and engines that a
device's library loads. What is opened is what was read of it, and of other people's only what needs nothing else.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import Any

from . import folder, threads
from .errors import Stop, bad_data
from .folder import Folder, Unfit

FILE = "model.onnx"
LARGEST = (2 << 30) - 1  # bytes; the format has no more
_STANDARD = ("", "ai.onnx")


def is_possible(place: Folder) -> bool:
    """Whether this environment can open it, of whomever it is."""
    packages = ("onnxruntime",) if _is_own(place) else ("onnxruntime", "onnx")
    return all(importlib.util.find_spec(package) for package in packages)


def session(place: Folder) -> Any:
    """An inference session on the best device."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise Stop(5, "onnxruntime is not installed", "--runtime")
    import onnxruntime

    try:
        content = place.read(FILE, LARGEST)
        if why := _objection(content, _is_own(place)):
            raise Unfit(why)
    except Unfit as unfit:
        raise bad_data(f"{place.path}/{FILE} {unfit}", "MODEL") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads.allowed()
    wanted = ("TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider")
    there = set(onnxruntime.get_available_providers())
    try:
        return onnxruntime.InferenceSession(content, options, providers=[one for one in wanted if one in there])
    except Exception as error:  # of many kinds, and all of them about the file
        raise bad_data(f"{place.path}/{FILE} cannot be loaded: {str(error)[:300]!r}", "MODEL") from None


def _is_own(place: Folder) -> bool:
    with place.open(FILE) as file:
        return place.objection is None and folder.objection(os.fstat(file.fileno())) is None


def _objection(content: bytes, is_own: bool) -> str | None:
    """Why it is not opened."""
    if importlib.util.find_spec("onnx") is None:
        return None if is_own else "belongs to another user and cannot be checked without the package onnx"
    import onnx

    try:
        model = onnx.load_model_from_string(content)
    except Exception:
        return "is not an ONNX model"
    for part in _parts(model.graph, *model.functions):
        if isinstance(part, onnx.TensorProto) and part.data_location == onnx.TensorProto.EXTERNAL:
            return "stores weights in other files, which are not opened: save it as one file"
        if isinstance(part, onnx.NodeProto) and not is_own and part.domain not in _STANDARD:
            return f"belongs to another user and has a non-standard operator: {part.domain[:80]!r}"
    return None


def _parts(*graphs: Any) -> Iterator[Any]:
    """All nodes and tensors, of graphs within graphs too."""
    waiting = list(graphs)
    while waiting:
        graph = waiting.pop()
        yield from getattr(graph, "initializer", ())
        sparse = list(getattr(graph, "sparse_initializer", ()))
        attributes = list(getattr(graph, "attribute_proto", ()))
        for node in graph.node:
            yield node
            attributes += node.attribute
        for attribute in attributes:
            yield from (attribute.t, *attribute.tensors)
            sparse += [attribute.sparse_tensor, *attribute.sparse_tensors]
            waiting += [attribute.g, *attribute.graphs]
        for tensor in sparse:
            yield from (tensor.values, tensor.indices)
