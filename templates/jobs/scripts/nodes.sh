#!/bin/bash
#SBATCH --job-name=train-on-several
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=4:00:00
set -e
# The first node is where the others find the one that leads.
export MASTER_ADDR=$(hostname) MASTER_PORT=29500
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    torchrun --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node=1 \
    --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" train.py
