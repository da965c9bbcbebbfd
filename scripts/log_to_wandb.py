#!/usr/bin/env python3
"""Sends a run's log rows and evaluations to Weights & Biases while it trains:

    trainer --config FILE --set 'log.command=python3 scripts/log_to_wandb.py my-project'
"""
import hashlib
import json
import os
import sys


def flat(row, prefix=""):
    """Joins nested keys: {"terms": {"loss_i2t": 1}} becomes {"terms/loss_i2t": 1}."""
    out = {}
    for key, value in row.items():
        out.update(flat(value, f"{prefix}{key}/") if isinstance(value, dict) else {prefix + key: value})
    return out


try:
    import wandb
except ImportError:
    print("log_to_wandb.py: the package wandb is missing (pip install wandb), so nothing is sent", file=sys.stderr)
    for line in sys.stdin:  # reads all rows, because otherwise the run would warn about a broken pipe
        pass
    sys.exit(0)

folder, name = os.environ["TESSERA_RUN_FOLDER"], os.environ["TESSERA_RUN_NAME"]
# A resumed run keeps its id, so W&B continues the run's curves. Checkpoints of an older version hold none.
run_id = os.environ.get("TESSERA_RUN_ID") or hashlib.sha1(folder.encode()).hexdigest()[:16]
run = wandb.init(project=sys.argv[1] if len(sys.argv) > 1 else "tessera", name=name, dir=folder, resume="allow", id=run_id)
run.save(os.path.join(folder, "config.yaml"), base_path=folder, policy="now")
run.define_metric("*", step_metric="step")
for line in sys.stdin:
    row = json.loads(line)
    if "start" not in row:  # the first line names the run and has no measurements
        run.log(flat(row))
run.finish()
