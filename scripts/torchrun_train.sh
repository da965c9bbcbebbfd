#!/usr/bin/env bash
# Trains on several machines with torchrun, one rank per GPU. Python is used only for torchrun.
set -euo pipefail
usage() {
  cat <<'EOT'
usage: scripts/torchrun_train.sh [--nodes N] [--head HOST] [--gpus N] [--port N] CONFIG [argument of trainer ...]
  --nodes N    machines (default: 1); run the same command on each of them. With --nodes MIN:MAX, machines may leave and join: torchrun
               restarts the ranks, and with training.global_batch, the run stays the same
  --head HOST  the machine that the others connect to (default: localhost)
  --gpus N     ranks on each machine, one per GPU (default: 1)
  --port N     port of the head (default: 29400)
  scripts/torchrun_train.sh --nodes 4 --head node01 --gpus 8 configs/sparc/vitb16.yaml --set run.folder=/nfs/run training.global_batch=16384
In the example, 32 GPUs share SPARC's batch of 16,384. The run folder must be on a file system that all machines see. Needs PyTorch's
torchrun.
EOT
}
nodes=1 head=localhost gpus=1 port=29400
while [ $# -gt 0 ]; do
  case $1 in
    --nodes) nodes=${2:?--nodes needs a number} ;;
    --head) head=${2:?--head needs a host} ;;
    --gpus) gpus=${2:?--gpus needs a number} ;;
    --port) port=${2:?--port needs a number} ;;
    -h|--help) usage; exit 0 ;;
    -*) echo "torchrun_train.sh: unknown argument $1 (see --help)" >&2; exit 2 ;;
    *) break ;;
  esac
  shift 2
done
if [ $# -lt 1 ]; then
  usage >&2
  exit 2
fi
trainer=${TESSERA_TRAINER:-$(dirname "$0")/../build/bin/trainer}
config=$1
shift
# If one machine fails, all machines stop. Each restart resumes from the newest complete checkpoint.
exec torchrun --nnodes "$nodes" --nproc-per-node "$gpus" --rdzv-backend c10d --rdzv-endpoint "$head:$port" --max-restarts 3 \
  --no-python "$trainer" --config "$config" --resume auto "$@"
