"""The trainer's LeNet and small network in plain PyTorch, as one writes it by hand: Adam over
pictures in memory, nothing written, nothing watched. Prints images a second; the first step of
each epoch is not counted, as in the trainer."""

import gzip
import sys
import time

import numpy as np
import torch
from torch import nn

BATCH = 64


def read(path, header):
    return np.frombuffer(bytearray(gzip.open(path).read()), np.uint8, offset=header)


def lenet():
    return nn.Sequential(
        *(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Dropout(0.5), nn.Linear(500, 10)),
    )


def small():
    layers, channels = [], 1
    for number, filters in enumerate((32, 32, 64, 64, 128, 128)):
        layers += [nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if number in (1, 3) else []
        channels = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(128, 10))


def main(network, folder, epochs):
    images = torch.from_numpy(read(f"{folder}/t10k-images-idx3-ubyte.gz", 16)).reshape(-1, 1, 28, 28)
    labels = torch.from_numpy(read(f"{folder}/t10k-labels-idx1-ubyte.gz", 8).astype(np.int64))
    model = {"lenet": lenet, "small-cnn": small}[network]()
    optimizer, loss = torch.optim.Adam(model.parameters(), 0.001), nn.CrossEntropyLoss()
    pictures, seconds = 0, 0.0
    for _ in range(epochs):
        rows, begun = torch.randperm(len(images)), None
        for at in range(0, len(rows) - BATCH + 1, BATCH):
            part = rows[at : at + BATCH]
            x, y = images[part].float() / 255, labels[part]
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimizer.step()
            begun = begun or time.monotonic()
        seconds += time.monotonic() - begun
        pictures += len(rows) // BATCH * BATCH - BATCH
    print(pictures / seconds, value.item())


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
