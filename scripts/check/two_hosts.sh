#!/usr/bin/env bash
# Trains the same small run in one process and on two "hosts" of two ranks each, and compares the loss curves. The hosts are network
# namespaces that a virtual Ethernet link connects. Like two machines, each has its own loopback device and addresses.
set -euo pipefail
cd "$(dirname "$0")/../.."
case ${1:-} in
  -h|--help)
    echo "usage: sudo scripts/check/two_hosts.sh [STEPS]"
    echo "  STEPS  training steps (default: 50). Needs root and ip (Debian: iproute2)."
    exit 0 ;;
  -*) echo "two_hosts: unknown argument $1 (see --help)" >&2; exit 2 ;;
esac
steps=${1:-50}
[ "$(id -u)" = 0 ] || { echo "two_hosts: needs root to create network namespaces" >&2; exit 2; }
command -v ip >/dev/null || { echo "two_hosts: needs ip (Debian: iproute2)" >&2; exit 2; }
[ -x build/bin/trainer ] || { echo "two_hosts: build/bin/trainer is missing: run scripts/setup.sh first" >&2; exit 2; }

folder=$(mktemp -d)
tag=ts$$
clean_up() {
  for host in 0 1; do
    ip netns pids "$tag-$host" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
    ip netns delete "$tag-$host" 2>/dev/null || true
  done
  rm -rf "$folder"
}
trap clean_up EXIT

for host in 0 1; do
  ip netns add "$tag-$host"
  ip -n "$tag-$host" link set lo up
done
ip link add "$tag-a" netns "$tag-0" type veth peer name "$tag-b" netns "$tag-1"
ip -n "$tag-0" addr add 10.87.0.1/24 dev "$tag-a"
ip -n "$tag-1" addr add 10.87.0.2/24 dev "$tag-b"
ip -n "$tag-0" link set "$tag-a" up
ip -n "$tag-1" link set "$tag-b" up

model=$folder/shapes.model
build/bin/tessera-data train-sentencepiece --source shapes --vocab-size 120 --out "$model" >/dev/null
train() { # FOLDER BATCH
  build/bin/trainer --config configs/shapes/sparc.yaml --set "run.folder=$1" --set "data.loader.batch_size=$2" \
    --set "training={steps: $steps, threads: 1, device: cpu}" --set "tokenizer.model=$model" --set log.every_steps=1 \
    --set "schedule.warmup_steps=10" --set "evaluation={}" --set checkpoint.every_steps=0 >"$1.${RANK:-0}.out" 2>&1
}
echo "one process, 32 samples per step"
train "$folder/one" 32 || { cat "$folder"/one.*.out >&2; echo "two_hosts: the run in one process failed" >&2; exit 1; }

echo "two hosts with two ranks each, 8 samples per step and rank"
pids=()
for rank in 0 1 2 3; do
  host=$((rank / 2))
  (
    export RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.87.0.1 MASTER_PORT=29511
    export -f train
    export steps model
    exec ip netns exec "$tag-$host" bash -c 'train "$0" 8' "$folder/four"
  ) &
  pids+=($!)
done
for pid in "${pids[@]}"; do
  wait "$pid" || { cat "$folder"/four.*.out >&2; echo "two_hosts: a rank failed" >&2; exit 1; }
done

python3 - "$folder/one/metrics.jsonl" "$folder/four/metrics.jsonl" <<'PYTHON'
import json, sys
one, four = ([json.loads(line)["loss"] for line in open(path)] for path in sys.argv[1:])
assert len(one) == len(four), (len(one), len(four))
worst = max(abs(a - b) / abs(a) for a, b in zip(one, four))
print(f"{len(one)} steps; loss {one[0]:.5f} -> {one[-1]:.5f} in one process, {four[0]:.5f} -> {four[-1]:.5f} on two hosts; "
      f"greatest relative difference {worst:.1e}")
sys.exit(worst > 1e-3)
PYTHON
