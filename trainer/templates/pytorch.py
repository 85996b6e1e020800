"""A PyTorch training that the portal can run, monitor and resume. Copy it and adapt it.

    python pytorch.py CONFIG.json          torchrun --nproc_per_node 2 pytorch.py CONFIG.json

The interface is small: the input is a JSON configuration; the output is event files, checkpoints
and an exit code. Curves are read only from the event files, so the program can print anything. The
parts to adapt come first: settings, data and network. The training loop below them can stay as it is.

Requires torch, numpy, pillow and tensorboard (for the event files).
"""

from __future__ import annotations

import csv
import json
import math
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.tensorboard import SummaryWriter

# Settings with their defaults. `data` is a folder with one folder for each class.
SETTINGS = {
    "output": None,
    "data": None,
    "size": 32,
    "epochs": 10,
    "batch_size": 64,
    "learning_rate": 0.003,
    "weight_decay": 0.01,
    "warm_up": 0.1,
    "validation_percent": 25,
    "flip": False,
    "shift": 0.0,
    "mixed_precision": False,
    "patience": 0,
    "keep_last": 2,
    "seed": 42,
}


def read_settings(path: Path) -> dict:
    """Reads the configuration. An error names its field."""
    try:
        given = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        fail(1, f"{path}: {error}")
    for name, value in given.items():
        if name not in SETTINGS:
            fail(1, f"{name}: is unknown; allowed are {', '.join(SETTINGS)}")
        like = SETTINGS[name]
        kind = str if like is None else type(like)
        if kind is float:
            value = given[name] = float(value) if type(value) in (int, float) else value
        if type(value) is not kind:
            fail(1, f"{name}: must be of type {kind.__name__}, not {value!r}")
    settings = SETTINGS | given
    for name in ("output", "data"):
        if settings[name] is None:
            fail(1, f"{name}: is missing")
        settings[name] = path.resolve().parent / settings[name]
    for name in ("size", "epochs", "batch_size", "learning_rate", "keep_last"):
        if settings[name] <= 0:
            fail(1, f"{name}: must be greater than 0")
    return settings


class Pictures(Dataset):
    """Images in class folders. Augmentation depends on seed, epoch and image, not on the worker."""

    def __init__(self, files: list, size: int, augment: dict | None):
        self.files, self.size, self.augment, self.epoch = files, size, augment, 0

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int):
        path, label = self.files[index]
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB").resize((self.size, self.size)), np.float32)
        pixels = pixels.transpose(2, 0, 1) / 127.5 - 1.0
        if self.augment:
            rng = np.random.default_rng([self.augment["seed"], self.epoch, index])
            if self.augment["flip"] and rng.random() < 0.5:
                pixels = pixels[:, :, ::-1]
            most = round(self.augment["shift"] * self.size)
            if most:
                pixels = np.roll(pixels, rng.integers(-most, most + 1, 2), (1, 2))
        return torch.from_numpy(pixels.copy()), label


def find(root: Path, validation_percent: float, seed: int):
    """Returns the classes and the files of both splits. Each class is split equally. Broken files are left out and reported."""
    if not root.is_dir():
        fail(2, f"data: {root} is not a folder")
    classes = sorted(child.name for child in root.iterdir() if child.is_dir())
    train, validation, broken = [], [], []
    for label, name in enumerate(classes):
        good = []
        for path in sorted(p for p in (root / name).rglob("*") if p.is_file()):
            try:
                with Image.open(path) as image:
                    image.load()
                good.append((path, label))
            except (OSError, SyntaxError, ValueError) as error:
                broken.append((path, error))
        random.Random(seed + label).shuffle(good)
        count = max(1, round(len(good) * validation_percent / 100)) if len(good) > 1 else 0
        validation += good[:count]
        train += good[count:]
    for path, error in broken:
        say("broken", path=str(path), error=str(error))
    if len({label for _, label in train}) < 2:
        fail(2, f"data: {root} must contain images of at least two classes")
    return classes, train, validation


def network(classes: int) -> nn.Module:
    def block(inside: int, outside: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(), nn.MaxPool2d(2)
        )

    return nn.Sequential(
        block(3, 32),
        block(32, 64),
        block(64, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(128, classes),
    )


def rate(step: int, steps: int, warm_up: float) -> float:
    """Factor on the learning rate: a linear rise, then down by half a cosine."""
    rise = warm_up * steps
    if step < rise:
        return (step + 1) / (rise + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, steps - rise)))


# From here on nothing need be changed.


def say(event: str, **facts) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def fail(code: int, message: str) -> None:
    say("error", message=message, code=code)
    sys.exit(code)


def restored(path: Path, device) -> dict:
    """What was saved, if it was by this user: a checkpoint is a pickle, which can bring code."""
    # PyTorch 1 knows no numbers in pickles without code.
    safe = {"weights_only": True} if not torch.__version__.startswith("1.") else {}
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            fail(1, f"output: {path} belongs to another user; use another output")
        return torch.load(file, map_location=device, **safe)


def save(path: Path, state: dict) -> None:
    """Whole or not at all: a job may be killed at any line."""
    beside = path.with_suffix(".part")
    try:
        torch.save(state, beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


class Training:
    def __init__(self, settings: dict):
        self.settings = settings
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        cuda = torch.cuda.is_available()
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
        if self.world > 1:
            dist.init_process_group("nccl" if cuda else "gloo")
        self.threads = max(1, int(float(os.environ.get("CPU_LIMIT") or len(os.sched_getaffinity(0)))))
        torch.set_num_threads(self.threads)  # what the quota allows, not what the machine has
        torch.manual_seed(settings["seed"])
        self.classes, train, validation = find(settings["data"], settings["validation_percent"], settings["seed"])
        augment = {key: settings[key] for key in ("flip", "shift", "seed")}
        self.train = Pictures(train, settings["size"], augment if augment["flip"] or augment["shift"] else None)
        self.validation = Pictures(validation, settings["size"], None)
        self.sampler = DistributedSampler(self.train, self.world, self.rank, seed=settings["seed"], drop_last=True)
        batch = min(settings["batch_size"], len(train)) // self.world
        self.train_loader = DataLoader(self.train, batch, sampler=self.sampler, drop_last=True)
        self.val_loader = DataLoader(self.validation, batch)
        self.steps = len(self.train_loader) * settings["epochs"]
        self.model = network(len(self.classes)).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), settings["learning_rate"], weight_decay=settings["weight_decay"]
        )
        self.scaler = torch.cuda.amp.GradScaler(enabled=settings["mixed_precision"] and cuda)
        self.epoch, self.step, self.best, self.waited = 0, 0, -1.0, 0
        self.checkpoints = settings["output"] / "checkpoints"
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.ask)

    def ask(self, *_) -> None:
        self.asked = True

    def state(self) -> dict:
        parts = {"model": self.model, "optimizer": self.optimizer, "scaler": self.scaler}
        return {name: part.state_dict() for name, part in parts.items()} | {
            "at": (self.epoch, self.step, float(self.best), self.waited),
            "classes": self.classes,
        }

    def resume(self) -> None:
        """From the newest checkpoint, at exactly the batch where it was made."""
        found = sorted(self.checkpoints.glob("step-*.pt"))
        if found:
            state = restored(found[-1], self.device)
            if state["classes"] != self.classes:
                fail(1, "output: has checkpoints for other classes")
            for name in ("model", "optimizer", "scaler"):
                getattr(self, name).load_state_dict(state[name])
            self.epoch, self.step, self.best, self.waited = state["at"]
            say("resume", epoch=self.epoch, step=self.step)

    def keep(self) -> None:
        if self.rank == 0:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            save(self.checkpoints / f"step-{self.step:08d}.pt", self.state())
            for old in sorted(self.checkpoints.glob("step-*.pt"))[: -self.settings["keep_last"]]:
                old.unlink()

    def run(self) -> int:
        self.resume()
        begin = self.step + 1 if self.step else None  # what an earlier attempt wrote from here on is past
        if self.rank == 0:
            folder = self.settings["output"] / "events"
            # Flushed at once: curves are live.
            self.events = {
                part: SummaryWriter(folder / part, purge_step=begin, flush_secs=1) for part in ("train", "validation")
            }
        parallel = nn.parallel.DistributedDataParallel(self.model) if self.world > 1 else self.model
        while self.epoch < self.settings["epochs"]:
            if not self.one_epoch(parallel):
                self.keep()
                say("terminated", epoch=self.epoch, step=self.step)
                return 143
            if 0 < self.settings["patience"] <= self.waited:
                say("early_stop", epoch=self.epoch)
                break
        if self.rank == 0:
            self.evaluate()
            for writer in self.events.values():
                writer.close()
        say("done", best=self.best)
        return 0

    def one_epoch(self, parallel: nn.Module) -> bool:
        """False if it was told to stop."""
        self.sampler.set_epoch(self.epoch)
        self.train.epoch = self.epoch
        skip = self.step - self.epoch * len(self.train_loader)
        self.model.train()
        for number, (images, labels) in enumerate(self.train_loader):
            if number < skip:
                continue
            if self.told_to_stop():
                return False
            self.one_step(parallel, images, labels)
        loss, accuracy, _ = self.measure()
        if self.world > 1:  # what they decide by must be the same for all
            said = torch.tensor([loss, accuracy], device=self.device)
            dist.broadcast(said, 0)
            loss, accuracy = said.tolist()
        self.epoch += 1
        better = accuracy > self.best
        self.best, self.waited = (accuracy, 0) if better else (self.best, self.waited + 1)
        self.keep()
        if self.rank == 0:
            if better:
                save(self.checkpoints / "best.pt", self.state())
            for name, value in (("loss", loss), ("accuracy", accuracy), ("epoch", self.epoch)):
                self.events["validation"].add_scalar(name, value, self.step)
        say("epoch", epoch=self.epoch, epochs=self.settings["epochs"], loss=loss, accuracy=accuracy)
        return True

    def told_to_stop(self) -> bool:
        """One process that is told stops them all, at the same batch."""
        if self.world == 1:
            return self.asked
        word = torch.tensor(float(self.asked), device=self.device)
        dist.all_reduce(word)
        return bool(word > 0)

    def one_step(self, parallel: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
        began = time.monotonic()
        factor = rate(self.step, self.steps, self.settings["warm_up"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings["learning_rate"] * factor
        torch.manual_seed(
            self.settings["seed"] * 1_000_003 + self.step
        )  # dropout, too, depends on where we stand alone
        images, labels = images.to(self.device), labels.to(self.device)
        with torch.autocast(
            self.device.type,
            enabled=self.settings["mixed_precision"],
            dtype=None if self.device.type == "cuda" else torch.bfloat16,
        ):
            logits = parallel(images)
        loss = nn.functional.cross_entropy(logits.float(), labels)
        if not torch.isfinite(loss) and not self.scaler.is_enabled():
            fail(3, f"the loss is not finite at step {self.step}")
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        if self.rank == 0:
            writer, seconds = self.events["train"], time.monotonic() - began
            writer.add_scalar("loss", loss.item(), self.step)
            writer.add_scalar("accuracy", (logits.argmax(1) == labels).float().mean().item(), self.step)
            writer.add_scalar("learning_rate", self.optimizer.param_groups[0]["lr"], self.step)
            writer.add_scalar("images_per_second", len(labels) * self.world / max(seconds, 1e-9), self.step)
            writer.add_scalar("epoch", self.step / len(self.train_loader), self.step)

    @torch.no_grad()
    def measure(self):
        """Loss and accuracy over the validation pictures, and the probabilities."""
        self.model.eval()
        found = torch.cat([self.model(images.to(self.device)).float().cpu() for images, _ in self.val_loader])
        truth = torch.tensor([label for _, label in self.validation.files])
        loss = nn.functional.cross_entropy(found, truth).item()
        return loss, (found.argmax(1) == truth).float().mean().item(), found.softmax(1).numpy()

    def evaluate(self) -> None:
        """What the best checkpoint says of each validation picture, and the confusion matrix of that."""
        self.model.load_state_dict(restored(self.checkpoints / "best.pt", self.device)["model"])
        loss, accuracy, found = self.measure()
        folder = self.settings["output"] / "eval" / "val"
        folder.mkdir(parents=True, exist_ok=True)
        matrix = np.zeros((len(self.classes),) * 2, int)
        with open(folder / "predictions.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["path", "label", "predicted", "confidence", *(f"p_{name}" for name in self.classes)])
            for (path, label), p in zip(self.validation.files, found):
                matrix[label, p.argmax()] += 1
                name = path.relative_to(self.settings["data"])
                writer.writerow(
                    [name, self.classes[label], self.classes[p.argmax()], f"{p.max():.6g}", *(f"{v:.6g}" for v in p)]
                )
        with open(folder / "confusion.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows(
                [["label", *self.classes], *([name, *row] for name, row in zip(self.classes, matrix.tolist()))]
            )
        (folder / "metrics.json").write_text(json.dumps({"pictures": len(found), "loss": loss, "accuracy": accuracy}))
        (self.settings["output"] / "labels.txt").write_text("".join(f"{name}\n" for name in self.classes))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        fail(1, "usage: python pytorch.py CONFIG.json")
    sys.exit(Training(read_settings(Path(sys.argv[1]))).run())
