#!/bin/bash
#SBATCH --job-name=compute
#SBATCH --cpus-per-task=8
#SBATCH --mem=8G
#SBATCH --time=2:00:00
set -e
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
./program
