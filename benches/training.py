"""The trainer beside the same network in plain JAX and plain PyTorch: what curves, snapshots, exact
resuming and a loader cost. Fashion-MNIST, 64 pictures a step, Adam, on this machine's cores."""

import json
import os
import pathlib
import subprocess

from rows import in_turns, median, result, row

ROOT = pathlib.Path(__file__).resolve().parent
PICTURES = "/usr/share/datasets/fashion-mnist"
# Epochs for each network. Of the 10,000 pictures the trainer keeps a quarter for validation.
NETWORKS = {"lenet": 4, "small-cnn": 1}


@row("training")
def training(stand, options):
    python, torch = options.keras, "/usr/bin/python3"
    files = {f"{part}s": f"{PICTURES}/t10k-{part}s-idx{n}-ubyte.gz" for part, n in (("image", 3), ("label", 1))}
    for network, epochs in NETWORKS.items():
        output, config = stand.work / "run", stand.work / "config.json"
        config.write_text(json.dumps({
            "output": str(output), "data": {"kind": "idx", **files}, "network": {"name": network}, "epochs": epochs,
            "batch_size": 64, "optimizer": {"name": "adam"}, "learning_rate": {"base": 0.001}, "resume": False}))
        plain = [network, PICTURES, str(epochs)]
        compared = {
            "trainer": [python, "-m", "trainer", "train", str(config)],
            "JAX": [python, ROOT / "plain_jax.py", *plain],
            "PyTorch": [torch, ROOT / "plain_torch.py", *plain],
        }

        def measure(name, command):
            env = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT.parent)}
            said = subprocess.run(command, check=True, env=env, capture_output=True, text=True).stdout
            if name == "trainer":
                return json.loads((output / "speed.json").read_text())["images_per_second"]
            return float(said.split()[0])

        rates = in_turns(options.rounds, compared, measure)
        ours = rates.pop("trainer")
        others = " · ".join(f"plain {name} {median(values):,.0f}/s" for name, values in rates.items())
        ratios = (median([one / other for one, other in zip(ours, values)]) for values in rates.values())
        yield result(f"{network}, pictures of 28 × 28 learnt", f"{median(ours):,.0f}/s", others,
                     " · ".join(f"{ratio:.2f}" for ratio in ratios))
