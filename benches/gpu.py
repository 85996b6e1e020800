#!/usr/bin/env python3
"""What the trainer and the diagnostics reach on the GPUs of this machine, as a table.

    benches/gpu.py                  ResNet-50 on 2,000 generated images of 224 × 224, by precision
    benches/gpu.py --batch 256
    benches/gpu.py --task detection --size 128 --batch 32 --backend torch

Run it with a Python that has Keras, JAX with CUDA, and what docs/trainer.md names."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRECISIONS = ("float32", "mixed_bfloat16")
NETWORKS = {"classification": "resnet-50", "segmentation": "u-net", "detection": "centres", "reconstruction": "autoencoder"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--task", choices=NETWORKS, default="classification")
    parser.add_argument("--network", help="default: resnet-50, u-net, centres or autoencoder, by the task")
    parser.add_argument("--size", type=int, default=224, help="width and height of the images (pixels)")
    parser.add_argument("--backend", choices=("jax", "torch"), default="jax")
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    options.network = options.network or NETWORKS[options.task]
    seen = subprocess.run([sys.executable, "-c", "import jax; print(jax.devices()[0].platform)"], capture_output=True, text=True)
    if seen.stdout.strip() in ("", "cpu"):
        sys.exit("JAX finds no GPU here; install its CUDA build, or check the driver with nvidia-smi")
    print("| GPU | network | batch | precision | images/s | ONNX differs by |\n|---|---|---|---|---|---|")
    for precision in PRECISIONS:
        with tempfile.TemporaryDirectory() as folder:
            speed, about = trained(pathlib.Path(folder), options, precision)
        onnx = about.get("onnx_difference") if about["onnx"] else about["onnx_reason"]
        print(f"| {speed['device']} | {options.network} | {options.batch} | {precision} | {speed['images_per_second']:,.0f} | {onnx} |",
              flush=True)


def trained(folder, options, precision):
    """The speed that a training writes, and what its export says."""
    config, output = folder / "config.json", folder / "run"
    config.write_text(json.dumps({
        "task": options.task, "backend": options.backend, "output": str(output), "data": {"kind": "shapes", "count": 2000},
        "image": {"width": options.size, "height": options.size}, "network": {"name": options.network}, "epochs": options.epochs,
        "batch_size": options.batch, "precision": precision, "resume": False,
        "optimizer": {"name": "adam"}, "learning_rate": {"base": 0.001}}))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    trainer = [sys.executable, "-m", "trainer"]
    subprocess.run([*trainer, config], check=True, env=env, stdout=subprocess.DEVNULL)
    last = sorted((output / "checkpoints").glob("epoch-*.keras"))[-1]
    said = subprocess.run([*trainer, "export", last, "--output", folder / "bundle"], check=True, env=env, capture_output=True, text=True)
    return json.loads((output / "speed.json").read_text()), json.loads(said.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
