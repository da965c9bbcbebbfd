#!/usr/bin/env bash
# Trains on several nodes under SLURM, one rank per GPU, and resumes automatically after a time limit or a preemption.
#
#   sbatch --nodes 4 scripts/slurm_train.sh configs/sparc/vitb16.yaml --set run.folder=/shared/runs/sparc_b16 data.loader.batch_size=512
#
# The run folder must be on a file system that all nodes see. Options of sbatch override the lines below.
#SBATCH --job-name=tessera
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=12
#SBATCH --time=24:00:00
#SBATCH --output=tessera-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
# Five minutes before the time limit, each rank gets SIGUSR1. The ranks finish the step, save, and exit with code 138.
#SBATCH --signal=USR1@300
set -uo pipefail
usage() {
  cat <<'EOT'
usage: sbatch [option of sbatch ...] scripts/slurm_train.sh CONFIG [argument of trainer ...]
  sbatch --nodes 4 scripts/slurm_train.sh configs/sparc/vitb16.yaml --set run.folder=/shared/runs/sparc_b16 data.loader.batch_size=512
The run folder must be on a file system that all nodes see. Starts one rank per GPU, by default on 2 nodes with 8 GPUs each.
data.loader.batch_size is the batch size per GPU: in the example, 32 GPUs share SPARC's batch of 16,384.
EOT
}
case ${1:-} in
  -h|--help) usage; exit 0 ;;
  '') usage >&2; exit 2 ;;
esac
trainer=${TESSERA_TRAINER:-$SLURM_SUBMIT_DIR/build/bin/trainer}
config=$1
shift

srun --kill-on-bad-exit=1 --wait=60 "$trainer" --config "$config" --resume auto "$@"
code=$?
case $code in
  0) echo "finished" ;;
  138 | 143)  # SIGUSR1 or SIGTERM stopped the trainer, and the state is saved
    echo "stopped by a signal, state saved: requeued"
    scontrol requeue "$SLURM_JOB_ID"
    ;;
  *) exit $code ;;
esac
