#!/usr/bin/env bash
# Trains on several nodes under SLURM, one rank per GPU, and resumes automatically after a time limit or a preemption.
#
#   sbatch --nodes 4 scripts/slurm_train.sh configs/sparc/vitb16.yaml --set run.folder=/shared/runs/sparc_b16 training.global_batch=16384
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
  sbatch --nodes 4 scripts/slurm_train.sh configs/sparc/vitb16.yaml --set run.folder=/shared/runs/sparc_b16 training.global_batch=16384
The run folder must be on a file system that all nodes see. Starts one rank per GPU, by default on 2 nodes with 8 GPUs each. A requeued job
may get another number of nodes (--nodes 2-4): with training.global_batch, the run stays the same.
environment:
  TESSERA_TRAINER  the program (default: build/bin/trainer of the folder in which sbatch was started; in a container: trainer)
  TESSERA_IMAGE    run in this container: a file IMAGE.sif for Apptainer, or an image that the plugin pyxis imports
  TESSERA_MOUNTS   folders that the container sees, separated by commas (default: the folder in which sbatch was started)
EOT
}
case ${1:-} in
  -h|--help) usage; exit 0 ;;
  '') usage >&2; exit 2 ;;
esac
trainer=${TESSERA_TRAINER:-$SLURM_SUBMIT_DIR/build/bin/trainer}
config=$1
shift

# The variables of Slurm, from which a rank learns its place, are visible inside of both kinds of container.
image=${TESSERA_IMAGE:-} mounts=${TESSERA_MOUNTS:-$SLURM_SUBMIT_DIR} step=(srun --kill-on-bad-exit=1 --wait=60)
case $image in
  '') ;;
  *.sif) step+=(apptainer exec --nv --bind "$mounts" --pwd "$SLURM_SUBMIT_DIR" "$image") trainer=${TESSERA_TRAINER:-trainer} ;;
  *)
    colons=$(sed -E 's/([^,:]+)(,|$)/\1:\1\2/g' <<<"$mounts")  # pyxis wants SOURCE:TARGET
    step+=(--container-image "$image" --container-mounts "$colons" --container-workdir "$SLURM_SUBMIT_DIR") trainer=${TESSERA_TRAINER:-trainer}
    ;;
esac
"${step[@]}" "$trainer" --config "$config" --resume auto "$@"
code=$?
case $code in
  0) echo "finished" ;;
  138 | 143)  # SIGUSR1 or SIGTERM stopped the trainer, and the state is saved
    echo "stopped by a signal, state saved: requeued"
    scontrol requeue "$SLURM_JOB_ID"
    ;;
  *) exit $code ;;
esac
