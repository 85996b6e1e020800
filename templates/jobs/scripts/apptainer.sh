#!/bin/bash
#SBATCH --job-name=container
#SBATCH --gpus=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=4:00:00
set -e
# --nv brings the driver of the node into the container.
apptainer exec --nv --bind "$LYCEUM_LOG_DIRECTORY" image.sif python train.py
