#!/bin/bash
#SBATCH --job-name=mpi
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --mem=8G
#SBATCH --time=1:00:00
set -e
# One process for each task; the site's MPI says which --mpi it needs: srun --mpi=list
srun ./program
