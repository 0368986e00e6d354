#!/bin/bash
# Trains one model on several nodes of a Slurm cluster, in as many jobs as it takes:
#
#     sbatch --job-name=NAME docs/slurm.sh [setting=value ...]
#
# The run is runs/NAME. Submit from the folder of the clone, which all nodes must share.
#
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1       # one torchrun, which starts one rank for each GPU
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@300       # to this script, 300 seconds before the time limit
#SBATCH --requeue                 # also if a node fails
#SBATCH --open-mode=append

set -u
source .venv/bin/activate
# Otherwise a torchrun that has replaced another is not found; see docs/ranks.md.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

requeue() {
    # To every torchrun, but not to this script. The ranks write a checkpoint and end. srun itself
    # would answer SIGTERM with SIGKILL.
    scancel --signal=TERM "$SLURM_JOB_ID"
    wait "$step"
    scontrol requeue "$SLURM_JOB_ID"
    exit
}
trap requeue USR1

# The first torchrun to end must not take the others with it: a rank may be writing the checkpoint.
srun --kill-on-bad-exit=0 --wait=0 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    torchrun --nnodes="$SLURM_NNODES" --nproc_per_node="$SLURM_GPUS_ON_NODE" \
    --rdzv_backend=c10d --rdzv_id="$SLURM_JOB_ID" \
    --rdzv_endpoint="$first:$((20000 + SLURM_JOB_ID % 10000))" \
    --max-restarts=3 --shutdown-timeout=240 \
    train.py resume=auto run_dir="runs/$SLURM_JOB_NAME" "$@" &
step=$!
wait "$step"
