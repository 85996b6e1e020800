"""Wrote the directories beside it, each with the writer that a program of that kind uses. Run again with
tensorboardX, tensorboard, pyyaml and transformers installed:

    layouts.py DIRECTORY
"""

import json
import pathlib
import sys

import yaml
from tensorboard.summary import Writer
from tensorboardX import SummaryWriter
from transformers import TrainerState

ROOT = pathlib.Path(sys.argv[1])


def pytorch(directory):
    """PyTorch's SummaryWriter has the same code behind it as tensorboardX's."""
    with SummaryWriter(str(directory), filename_suffix=".pytorch") as writer:
        for step in range(5):
            writer.add_scalar("Loss/train", 1 / (step + 1), step, walltime=1_700_000_000 + step)
            # A directory for each of them.
            writer.add_scalars("both", {"up": step, "down": -step}, step, walltime=1_700_000_000 + step)
        writer.add_text("note", "no curve", 0)
        writer.add_hparams({"lr": 0.1, "bsize": 32, "optimizer": "sgd", "nesterov": True}, {"accuracy": 0.9}, name="trial")


def keras(directory):
    """The directories and tags of the Keras callback; its scalars are tensors, as these are."""
    for part, offset in [("train", 0.0), ("validation", 0.5)]:
        writer = Writer(str(directory / part))
        for epoch in range(3):
            writer.add_scalar("epoch_loss", 1.0 / (epoch + 1) + offset, epoch, wall_time=1_700_000_000 + epoch)
            writer.add_scalar("epoch_accuracy", epoch / 4, epoch, wall_time=1_700_000_000 + epoch)
        writer.flush()
        writer.close()


def lightning(directory):
    """Versions, with the epoch as a curve, and the hyper-parameters as its logger dumps them."""
    for version in range(2):
        place = directory / "lightning_logs" / f"version_{version}"
        with SummaryWriter(str(place)) as writer:
            for step in [9, 19, 29]:
                writer.add_scalar("train_loss", 1 / (step + version), step, walltime=1_700_000_000 + step)
                writer.add_scalar("epoch", step // 10, step, walltime=1_700_000_000 + step)
        hparams = {"learning_rate": 0.02 * (version + 1), "hidden_dim": 128, "optimizer": {"name": "adam", "betas": [0.9, 0.999]}}
        (place / "hparams.yaml").write_text(yaml.dump(hparams))


def hugging_face(directory):
    """Events below runs/, and without them the trainer's state in its checkpoints."""
    with SummaryWriter(str(directory / "events" / "runs" / "Nov14_22-13-20_host")) as writer:
        for step in [10, 20]:
            writer.add_scalar("train/loss", 1 / step, step, walltime=1_700_000_000 + step)
            writer.add_scalar("eval/loss", 2 / step, step, walltime=1_700_000_000 + step)
    history = []
    for step in [10, 20]:
        history.append({"loss": 1 / step, "grad_norm": float("nan"), "learning_rate": 5e-5, "epoch": step / 10, "step": step})
        history.append({"eval_loss": 2 / step, "eval_runtime": 1.5, "epoch": step / 10, "step": step})
        checkpoint = directory / "states" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        state = TrainerState(epoch=step / 10, global_step=step, max_steps=20, log_history=list(history))
        state.save_to_json(str(checkpoint / "trainer_state.json"))
    assert json.loads((checkpoint / "trainer_state.json").read_text())["global_step"] == 20


pytorch(ROOT / "pytorch")
keras(ROOT / "keras")
lightning(ROOT / "lightning")
hugging_face(ROOT / "hugging_face")
