"""A Keras model as an ONNX graph, layer by layer, on whatever backend it is loaded: the layers of which the networks
here are made, and what people commonly put beside them. A layer that is not known ends it with its name.

Values lie as in Keras, channels last; convolutions and pools stand between two transpositions, which ONNX Runtime
takes out again. What the operators mean is said at https://onnx.ai/onnx/operators/ (opset 17).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save_model

from .networks import modern

OPSET = 17


class Unknown(Exception):
    """A layer, or an option of one, that nothing is written for."""


def write(model: keras.Model, path: Path) -> None:
    """Writes the whole model; each answer has the number of pictures as its first size."""
    graph = _Graph()
    inputs = [helper.make_tensor_value_info(_plain(x), TensorProto.FLOAT, ["N", *x.shape[1:]]) for x in model.inputs]
    outputs = graph.model(model, [_plain(x) for x in model.inputs])
    told = []
    for place, (name, x) in enumerate(zip(outputs, model.outputs)):
        last = "answer" if len(outputs) == 1 else f"answer_{place}"
        graph.node("Identity", [name], output=last)
        told.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, ["N", *x.shape[1:]]))
    made = helper.make_graph(graph.nodes, model.name, inputs, told, graph.constants)
    whole = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="lyceum")
    whole.ir_version = 8  # what belongs to this opset, so that older runtimes read it too
    checker.check_model(whole)
    save_model(whole, str(path))


class _Graph:
    """Nodes and constants so far; values are known by their names."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names: dict[str, int] = {}

    def fresh(self, kind: str) -> str:
        self.names[kind] = self.names.get(kind, 0) + 1
        return f"{kind}_{self.names[kind]}"

    def node(self, kind: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        output = output or self.fresh(kind)
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = self.fresh("constant")
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(np.asarray(value, dtype)), name))
        return name

    def model(self, model: keras.Model, inputs: list[str]) -> list[str]:
        """All of its layers, each where its inputs are known."""
        if type(model) is keras.Sequential:
            for layer in model.layers:
                inputs = self.model(layer, inputs) if isinstance(layer, keras.Model) else [self.layer(layer, inputs)]
            return inputs
        if type(model).__name__ != "Functional":
            raise _unknown(model)
        known = {id(x): name for x, name in zip(model.inputs, inputs)}
        waiting = [(operation, node) for operation in model.operations for node in operation._inbound_nodes]
        # A layer that is used twice has two nodes, and those of other models besides.
        while ready := [one for one in waiting if all(id(x) in known for x in one[1].input_tensors)]:
            waiting = [one for one in waiting if one not in ready]
            for operation, node in ready:
                if node.is_input:
                    continue
                if isinstance(operation, keras.Model):
                    found = self.model(operation, [known[id(x)] for x in node.input_tensors])
                elif isinstance(operation, keras.Layer):
                    _is_called_plainly(operation, node.arguments, known)
                    found = [self.layer(operation, [known[id(x)] for x in node.input_tensors])]
                else:
                    found = [self.operation(operation, node.arguments, known)]
                known.update(zip((id(x) for x in node.output_tensors), found))
        return [known[id(x)] for x in model.outputs]

    def layer(self, layer: Any, inputs: list[str]) -> str:
        # What somebody derived from one of these may do something else.
        if type(layer) not in _LAYERS:
            raise _unknown(layer)
        return _LAYERS[type(layer)](self, layer, *inputs)

    def operation(self, operation: Any, arguments: Any, known: dict[int, str]) -> str:
        """Arithmetic between layers, as in `x * 2`."""
        kind = _ARITHMETIC.get(type(operation).__name__)
        given = arguments.args
        plain = [isinstance(one, (int, float)) or id(one) in known for one in given]
        if kind is None or arguments.kwargs or len(given) != 2 or not all(plain):
            raise _unknown(operation)
        return self.node(kind, [known[id(one)] if id(one) in known else self.constant(one) for one in given])

    def activation(self, function: Any, x: str) -> str:
        name = getattr(function, "__name__", str(function))
        if function is None or function is keras.activations.linear:
            return x
        # What somebody calls by the same name may do something else.
        if name not in _ACTIVATIONS or function is not getattr(keras.activations, name):
            raise Unknown(f"unsupported activation {name}")
        return _ACTIVATIONS[name](self, x)

    def between(self, x: str, made: Callable[[str], str]) -> str:
        """Something that wants channels first."""
        return self.node("Transpose", [made(self.node("Transpose", [x], perm=[0, 3, 1, 2]))], perm=[0, 2, 3, 1])


def _unknown(layer: Any) -> Unknown:
    return Unknown(f"unsupported layer {type(layer).__name__} ({layer.name})")


def _is_called_plainly(layer: Any, arguments: Any, known: dict[int, str]) -> None:
    """With values by their place and nothing else: no mask, no training of its own, no names in another order."""
    by_name = [value for value in arguments.kwargs.values() if value is not None and value is not False]
    if by_name or any(id(x) not in known for x in keras.tree.flatten(arguments.args)):
        raise Unknown(f"the layer {layer.name} ({type(layer).__name__}) is called with additional arguments")


def _plain(x: Any) -> str:
    return x.name.split(":")[0].replace("/", "_")


def _weights(value: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(value), np.float32)


def _pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, (tuple, list)) else [value, value]


def _last(layer: Any) -> None:
    if getattr(layer, "data_format", "channels_last") != "channels_last":
        raise Unknown(f"the layer {layer.name} uses channels-first data")


def _padding(layer: Any) -> dict[str, Any]:
    """`same` of Keras puts what is odd at the end."""
    return {"auto_pad": "SAME_UPPER"} if layer.padding == "same" else {"pads": [0, 0, 0, 0]}


def _convolution(graph: _Graph, layer: Any, x: str) -> str:
    _last(layer)
    # Height, width, in, out become out, in, height, width.
    kernel = graph.constant(_weights(layer.kernel).transpose(3, 2, 0, 1))
    return _convolved(graph, layer, x, kernel, layer.groups)


def _depthwise(graph: _Graph, layer: Any, x: str) -> str:
    _last(layer)
    kernel = _weights(layer.kernel)  # height, width, in, how many for each
    height, width, channels, each = kernel.shape
    kernel = kernel.transpose(2, 3, 0, 1).reshape(channels * each, 1, height, width)
    return _convolved(graph, layer, x, graph.constant(kernel), channels)


def _convolved(graph: _Graph, layer: Any, x: str, kernel: str, groups: int) -> str:
    bias = [graph.constant(_weights(layer.bias))] if layer.use_bias else []
    options = {"strides": _pair(layer.strides), "dilations": _pair(layer.dilation_rate), "group": groups}
    made = graph.between(x, lambda x: graph.node("Conv", [x, kernel, *bias], **options, **_padding(layer)))
    return graph.activation(layer.activation, made)


def _turned(graph: _Graph, layer: Any, x: str) -> str:
    _last(layer)
    if layer.output_padding is not None:
        raise Unknown(f"the layer {layer.name} has an output padding")
    kernel = graph.constant(_weights(layer.kernel).transpose(3, 2, 0, 1))  # height, width, out, in
    bias = [graph.constant(_weights(layer.bias))] if layer.use_bias else []
    options = {"strides": _pair(layer.strides), "dilations": _pair(layer.dilation_rate)}
    made = graph.between(x, lambda x: graph.node("ConvTranspose", [x, kernel, *bias], **options, **_padding(layer)))
    return graph.activation(layer.activation, made)


def _dense(graph: _Graph, layer: Any, x: str) -> str:
    x = graph.node("MatMul", [x, graph.constant(_weights(layer.kernel))])
    if layer.use_bias:
        x = graph.node("Add", [x, graph.constant(_weights(layer.bias))])
    return graph.activation(layer.activation, x)


def _scaled(graph: _Graph, x: str, scale: Any, offset: Any) -> str:
    return graph.node("Add", [graph.node("Mul", [x, graph.constant(scale)]), graph.constant(offset)])


def _batch_normalised(graph: _Graph, layer: Any, x: str) -> str:
    if layer.axis not in (-1, layer.input_spec.ndim - 1):
        raise Unknown(f"the layer {layer.name} does not work on the last axis")
    scale = 1 / np.sqrt(_weights(layer.moving_variance) + layer.epsilon)
    scale = scale * _weights(layer.gamma) if layer.scale else scale
    offset = -_weights(layer.moving_mean) * scale
    offset = offset + _weights(layer.beta) if layer.center else offset
    return _scaled(graph, x, scale, offset)


def _normalised(graph: _Graph, layer: Any, x: str) -> str:
    deviation = np.maximum(np.sqrt(_weights(layer.variance)), keras.config.epsilon())
    mean = _weights(layer.mean)
    if layer.invert:
        return _scaled(graph, x, deviation, mean)
    return _scaled(graph, x, 1 / deviation, -mean / deviation)


def _layer_normalised(graph: _Graph, layer: Any, x: str) -> str:
    axes = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    if list(axes) != [-1] or not layer.scale or not layer.center or getattr(layer, "rms_scaling", False):
        raise Unknown(f"the layer {layer.name} does not normalise the last axis with scale and offset")
    scale, offset = _weights(layer.gamma), _weights(layer.beta)
    inputs = [x, graph.constant(scale), graph.constant(offset)]
    return graph.node("LayerNormalization", inputs, axis=-1, epsilon=layer.epsilon)


def _pool(kind: str) -> Callable[..., str]:
    def made(graph: _Graph, layer: Any, x: str) -> str:
        _last(layer)
        options = {"kernel_shape": _pair(layer.pool_size), "strides": _pair(layer.strides)}
        return graph.between(x, lambda x: graph.node(kind, [x], **options, **_padding(layer)))

    return made


def _reduce(kind: str, axes: list[int]) -> Callable[..., str]:
    def made(graph: _Graph, layer: Any, x: str) -> str:
        _last(layer)
        return graph.node(kind, [x], axes=axes, keepdims=int(layer.keepdims))

    return made


def _join(kind: str) -> Callable[..., str]:
    def made(graph: _Graph, layer: Any, *inputs: str) -> str:
        if layer._reshape_required:
            raise Unknown(f"the layer {layer.name} merges values of different rank")
        whole = inputs[0]
        for more in inputs[1:]:
            whole = graph.node(kind, [whole, more])
        return whole

    return made


def _upsampled(graph: _Graph, layer: Any, x: str) -> str:
    _last(layer)
    mode = {"nearest": "nearest", "bilinear": "linear"}.get(layer.interpolation)
    if mode is None:
        raise Unknown(f"the layer {layer.name} interpolates by {layer.interpolation}")
    scales = graph.constant([1, 1, *_pair(layer.size)])
    options = {"mode": mode, "coordinate_transformation_mode": "asymmetric" if mode == "nearest" else "half_pixel"}
    options |= {"nearest_mode": "floor"} if mode == "nearest" else {}
    return graph.between(x, lambda x: graph.node("Resize", [x, "", scales], **options))


def _padded(graph: _Graph, layer: Any, x: str) -> str:
    _last(layer)
    (top, bottom), (left, right) = layer.padding
    return graph.node("Pad", [x, graph.constant([0, top, left, 0, 0, bottom, right, 0], np.int64)])


def _cropped(graph: _Graph, layer: Any, x: str) -> str:
    _last(layer)
    (top, bottom), (left, right) = layer.cropping
    large = np.iinfo(np.int64).max
    ends = [-bottom if bottom else large, -right if right else large]
    return graph.node("Slice", [x, *(graph.constant(v, np.int64) for v in ([top, left], ends, [1, 2]))])


def _flattened(graph: _Graph, layer: Any, x: str) -> str:
    _last(layer)
    return graph.node("Flatten", [x], axis=1)


def _reshaped(graph: _Graph, layer: Any, x: str) -> str:
    return graph.node("Reshape", [x, graph.constant([0, *layer.target_shape], np.int64)])


def _attention(graph: _Graph, layer: Any, *inputs: str) -> str:
    """Query, value and, where it is another one, key."""
    if not 2 <= len(inputs) <= 3 or len(layer.output_dense.kernel.shape) != 3:
        raise Unknown(f"the layer {layer.name} has a mask, or attends over several axes")
    query, value = inputs[:2]
    key = inputs[2] if len(inputs) > 2 else value
    heads, size = layer.num_heads, layer.key_dim

    def projected(dense: Any, x: str, order: list[int]) -> str:
        kernel = _weights(dense.kernel)  # in, heads, size
        x = graph.node("MatMul", [x, graph.constant(kernel.reshape(kernel.shape[0], -1))])
        if dense.bias is not None:
            x = graph.node("Add", [x, graph.constant(_weights(dense.bias).reshape(-1))])
        x = graph.node("Reshape", [x, graph.constant([0, 0, heads, kernel.shape[2]], np.int64)])
        return graph.node("Transpose", [x], perm=order)

    query = projected(layer.query_dense, query, [0, 2, 1, 3])
    key = projected(layer.key_dense, key, [0, 2, 3, 1])
    value = projected(layer.value_dense, value, [0, 2, 1, 3])
    scores = graph.node("Mul", [graph.node("MatMul", [query, key]), graph.constant(1 / np.sqrt(size))])
    seen = graph.node("MatMul", [graph.node("Softmax", [scores], axis=-1), value])
    seen = graph.node("Transpose", [seen], perm=[0, 2, 1, 3])
    kernel = _weights(layer.output_dense.kernel)  # heads, size, out
    seen = graph.node("Reshape", [seen, graph.constant([0, 0, kernel.shape[0] * kernel.shape[1]], np.int64)])
    seen = graph.node("MatMul", [seen, graph.constant(kernel.reshape(-1, kernel.shape[2]))])
    if layer.output_dense.bias is None:
        return seen
    return graph.node("Add", [seen, graph.constant(_weights(layer.output_dense.bias))])


def _relu(graph: _Graph, layer: Any, x: str) -> str:
    if layer.negative_slope or layer.threshold:
        raise Unknown(f"the layer {layer.name} has a slope or a threshold")
    x = graph.node("Relu", [x])
    return x if layer.max_value is None else graph.node("Min", [x, graph.constant(layer.max_value)])


def _rescaled(graph: _Graph, layer: Any, x: str) -> str:
    return _scaled(graph, x, layer.scale, layer.offset)


def _gelu(graph: _Graph, x: str) -> str:
    """x / 2 × (1 + erf(x / √2)), as `keras.activations.gelu` unless it is asked for an approximation."""
    part = graph.node("Erf", [graph.node("Mul", [x, graph.constant(1 / np.sqrt(2))])])
    half = graph.node("Mul", [x, graph.constant(0.5)])
    return graph.node("Mul", [half, graph.node("Add", [part, graph.constant(1)])])


def _simple(kind: str, **attributes: Any) -> Callable[[_Graph, str], str]:
    return lambda graph, x: graph.node(kind, [x], **attributes)


def _hard_sigmoid(graph: _Graph, x: str) -> str:
    return graph.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)


_ACTIVATIONS: dict[str, Callable[[_Graph, str], str]] = {
    "relu": _simple("Relu"),
    "relu6": lambda graph, x: graph.node("Clip", [x, graph.constant(0), graph.constant(6)]),
    "sigmoid": _simple("Sigmoid"),
    "tanh": _simple("Tanh"),
    "softmax": _simple("Softmax", axis=-1),
    "softplus": _simple("Softplus"),
    "elu": _simple("Elu", alpha=1.0),
    "selu": _simple("Selu"),
    "gelu": _gelu,
    "silu": lambda graph, x: graph.node("Mul", [x, graph.node("Sigmoid", [x])]),
    "hard_sigmoid": _hard_sigmoid,
    "hard_silu": lambda graph, x: graph.node("Mul", [x, _hard_sigmoid(graph, x)]),
    "leaky_relu": _simple("LeakyRelu", alpha=0.2),
}

_ARITHMETIC = {"Add": "Add", "Subtract": "Sub", "Multiply": "Mul", "Divide": "Div", "TrueDivide": "Div"}

_same: Callable[..., str] = lambda graph, layer, x: x  # noqa: E731

_LAYERS: dict[type, Callable[..., str]] = {
    keras.layers.InputLayer: _same,
    keras.layers.Dropout: _same,
    keras.layers.SpatialDropout2D: _same,
    keras.layers.GaussianNoise: _same,
    keras.layers.Identity: _same,
    keras.layers.Rescaling: _rescaled,
    keras.layers.Normalization: _normalised,
    keras.layers.DepthwiseConv2D: _depthwise,
    keras.layers.Conv2DTranspose: _turned,
    keras.layers.Conv2D: _convolution,
    keras.layers.Dense: _dense,
    keras.layers.BatchNormalization: _batch_normalised,
    keras.layers.LayerNormalization: _layer_normalised,
    keras.layers.MultiHeadAttention: _attention,
    keras.layers.MaxPooling2D: _pool("MaxPool"),
    keras.layers.AveragePooling2D: _pool("AveragePool"),
    keras.layers.GlobalAveragePooling2D: _reduce("ReduceMean", [1, 2]),
    keras.layers.GlobalAveragePooling1D: _reduce("ReduceMean", [1]),
    keras.layers.GlobalMaxPooling2D: _reduce("ReduceMax", [1, 2]),
    keras.layers.UpSampling2D: _upsampled,
    keras.layers.ZeroPadding2D: _padded,
    keras.layers.Cropping2D: _cropped,
    keras.layers.Flatten: _flattened,
    keras.layers.Reshape: _reshaped,
    keras.layers.ReLU: _relu,
    keras.layers.Activation: lambda graph, layer, x: graph.activation(layer.activation, x),
    keras.layers.Softmax: lambda graph, layer, x: graph.node("Softmax", [x], axis=layer.axis),
    keras.layers.LeakyReLU: lambda graph, layer, x: graph.node("LeakyRelu", [x], alpha=float(layer.negative_slope)),
    modern.Positions: lambda graph, layer, x: graph.node("Add", [x, graph.constant(_weights(layer.table))]),
    keras.layers.Add: _join("Add"),
    keras.layers.Multiply: _join("Mul"),
    keras.layers.Subtract: _join("Sub"),
    keras.layers.Concatenate: lambda graph, layer, *inputs: graph.node("Concat", list(inputs), axis=layer.axis),
}
