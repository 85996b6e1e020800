"""The trainer's LeNet and small network in plain JAX, as one writes it by hand: one jitted step of
Adam over pictures in memory, nothing written, nothing watched. Prints images a second; the first
step of each epoch is not counted, as in the trainer."""

import gzip
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

BATCH = 64


def read(path, header):
    return np.frombuffer(gzip.open(path).read(), np.uint8, offset=header)


def convolved(x, w, padding="VALID"):
    return jax.lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pooled(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def drop(key, x, share):
    return jnp.where(jax.random.bernoulli(key, 1 - share, x.shape), x / (1 - share), 0)


def made(key, *shape):
    fan_in, fan_out = np.prod(shape[:-1]), np.prod(shape[:-2]) * shape[-1]
    limit = (6 / (fan_in + fan_out)) ** 0.5
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)


def lenet_parameters(key):
    k = jax.random.split(key, 4)
    shapes = [(5, 5, 1, 20), (5, 5, 20, 50), (800, 500), (500, 10)]
    return [(made(one, *shape), jnp.zeros(shape[-1])) for one, shape in zip(k, shapes)], []


def lenet(parameters, state, x, key):
    for w, b in parameters[:2]:
        x = pooled(jax.nn.relu(convolved(x, w) + b))
    (w, b), (v, c) = parameters[2:]
    x = drop(key, jax.nn.relu(x.reshape(len(x), -1) @ w + b), 0.5)
    return x @ v + c, state


def small_parameters(key):
    parameters, state, channels = [], [], 1
    for one, filters in zip(jax.random.split(key, 6), (32, 32, 64, 64, 128, 128)):
        parameters.append((made(one, 3, 3, channels, filters), jnp.ones(filters), jnp.zeros(filters)))
        state.append((jnp.zeros(filters), jnp.ones(filters)))
        channels = filters
    return [*parameters, (made(key, 128, 10), jnp.zeros(10))], state


def small(parameters, state, x, key):
    after = []
    for number, ((w, scale, offset), (mean, variance)) in enumerate(zip(parameters[:-1], state)):
        x = convolved(x, w, "SAME")
        m, v = x.mean((0, 1, 2)), x.var((0, 1, 2))
        after.append((0.9 * mean + 0.1 * m, 0.9 * variance + 0.1 * v))
        x = jax.nn.relu((x - m) * jax.lax.rsqrt(v + 1e-3) * scale + offset)
        if number in (1, 3):
            x = pooled(x)
    w, b = parameters[-1]
    return drop(key, x.mean((1, 2)), 0.3) @ w + b, after


def main(network, folder, epochs):
    images = read(f"{folder}/t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1)
    labels = read(f"{folder}/t10k-labels-idx1-ubyte.gz", 8).astype(np.int32)
    start, forward = {"lenet": (lenet_parameters, lenet), "small-cnn": (small_parameters, small)}[network]

    def loss(parameters, state, x, y, key):
        logits, state = forward(parameters, state, x.astype(jnp.float32) / 255, key)
        right = (logits.argmax(1) == y).mean()
        return -jax.nn.log_softmax(logits)[jnp.arange(len(y)), y].mean(), (state, right)

    @jax.jit
    def step(parameters, state, moments, number, x, y):
        key = jax.random.fold_in(jax.random.key(1), number)
        (value, (state, right)), slopes = jax.value_and_grad(loss, has_aux=True)(parameters, state, x, y, key)
        rate = 0.001 * jnp.sqrt(1 - 0.999**number) / (1 - 0.9**number)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], slopes)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], slopes)
        parameters = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-7), parameters, first, second)
        return parameters, state, (first, second), value, right

    parameters, state = start(jax.random.key(0))
    moments = (jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(jnp.zeros_like, parameters))
    order, number, pictures, seconds = np.random.default_rng(0), 0, 0, 0.0
    for _ in range(epochs):
        rows = order.permutation(len(images))
        begun = None
        for at in range(0, len(rows) - BATCH + 1, BATCH):
            number += 1
            part = rows[at : at + BATCH]
            parameters, state, moments, value, right = step(parameters, state, moments, number, images[part], labels[part])
            if begun is None:
                value.block_until_ready()
                begun = time.monotonic()
        value.block_until_ready()
        seconds += time.monotonic() - begun
        pictures += len(rows) // BATCH * BATCH - BATCH
    print(pictures / seconds, float(value), float(right))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
