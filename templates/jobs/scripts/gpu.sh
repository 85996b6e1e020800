#!/bin/bash
#SBATCH --job-name=train
#SBATCH --gpus=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=4:00:00
set -e
nvidia-smi --list-gpus || true
python train.py --output "$LYCEUM_LOG_DIRECTORY"
