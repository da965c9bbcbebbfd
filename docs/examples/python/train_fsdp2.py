"""Trains a model in Python with FSDP2: the blocks are sharded over the ranks of torchrun, the loss is one of the trainer's, checkpoints are
DCP's, and training continues from the newest one.

    torchrun --nproc-per-node 8 train_fsdp2.py --model runs/mine --objective '{"name": "sparc"}' --out runs/fsdp2 \
        --source '{"name": "webdataset", "path": "shards/*.tar"}' --steps 10000 --batch-size 256

With the same model, data, seed and settings, the losses are those of trainer. `--out` gets metrics.jsonl, checkpoints/step_N and, at the end,
model.safetensors for evaluate, tessera.load and start.weights.
"""
import argparse
import json
import math
import os
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tessera

# As the trainer's optimizer.no_decay
NO_DECAY = ("bias", "ln_", "norm", "logit_scale", "positional_embedding", "position_embedding", "pos_embed", "class_embedding",
            "class_token", "cls_token")


def arguments():
    parser = argparse.ArgumentParser(description="Trains a model with FSDP2.")
    parser.add_argument("--model", required=True, help="a run, a checkpoint or a model file")
    parser.add_argument("--source", required=True, type=json.loads, help="as data.train of a configuration, as JSON")
    parser.add_argument("--loader", default={}, type=json.loads, help="further settings of data.loader, as JSON")
    parser.add_argument("--objective", default={"name": "clip"}, type=json.loads, help="as objective of a configuration, as JSON")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="a folder for the log, checkpoints and the model")
    for name, default in (("steps", 1000), ("batch-size", 64), ("warmup-steps", 0), ("checkpoint-steps", 500), ("threads", 2), ("seed", 0)):
        parser.add_argument(f"--{name}", default=default, type=int)
    for name, default in (("lr", 5e-4), ("weight-decay", 0.2), ("beta2", 0.98), ("eps", 1e-6), ("clip-norm", math.inf)):
        parser.add_argument(f"--{name}", default=default, type=float)
    return parser.parse_args()


def learning_rate(step, a):
    """A linear warm-up, then half a cosine."""
    if step < a.warmup_steps:
        return a.lr * (step + 1) / a.warmup_steps
    return a.lr * (1 + math.cos(math.pi * (step - a.warmup_steps) / max(1, a.steps - a.warmup_steps))) / 2


def parameter_groups(whole, weight_decay):
    decays = {True: [], False: []}
    for name, parameter in whole.named_parameters():
        decays[parameter.dim() >= 2 and not any(part in name for part in NO_DECAY)].append(parameter)
    return [{"params": decays[True], "weight_decay": weight_decay}, {"params": decays[False], "weight_decay": 0.0}]


def clip(parts, limit):
    """Scales the gradients of all parts so that their common norm is at most the limit."""
    gradients = [[p.grad for p in part.parameters() if p.grad is not None] for part in parts]
    norms = [torch.nn.utils.get_total_norm(group) for group in gradients if group]
    norm = torch.stack([n.full_tensor() if hasattr(n, "full_tensor") else n for n in norms]).norm()
    for part in parts:
        torch.nn.utils.clip_grads_with_norm_(part.parameters(), limit, norm)


def main():
    a = arguments()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    model = tessera.load(a.model, device, blocks=True)
    objective = tessera.objectives.Objective(model=model, seed=a.seed, **a.objective)
    objective.to(device)
    mesh = dist.init_device_mesh(device.type, (ranks,))
    for block in model.blocks():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    # The few parameters of the objective are on every rank.
    loss_of = DistributedDataParallel(objective) if any(p.requires_grad for p in objective.parameters()) else objective

    whole = torch.nn.ModuleDict({"model": model, "objective": objective})
    optimizer = torch.optim.AdamW(parameter_groups(whole, a.weight_decay), a.lr, (0.9, a.beta2), a.eps)
    loader = tessera.Loader(a.source, model=model, objective=objective, batch_size=a.batch_size, threads=a.threads, seed=a.seed, rank=rank,
                            world_size=ranks, pin_memory=cuda, **a.loader)

    done = 0
    checkpoints = sorted(a.out.glob("checkpoints/step_*/.metadata"))  # DCP writes this file last
    if checkpoints:
        weights, moments = get_state_dict(whole, optimizer)
        state = {"weights": weights, "moments": moments, "done": 0, f"loader_{rank}": loader.state_dict()}
        dcp.load(state, checkpoint_id=checkpoints[-1].parent)
        set_state_dict(whole, optimizer, model_state_dict=state["weights"], optim_state_dict=state["moments"])
        loader.load_state_dict(state[f"loader_{rank}"])
        done = state["done"]

    for step in range(done, a.steps):
        batch = loader.next()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, a)
        losses = loss_of(model(batch, objective), step=step, total_steps=a.steps, epoch=loader.epoch)
        optimizer.zero_grad()
        losses.total.backward()
        clip([model, objective], a.clip_norm)
        optimizer.step()
        objective.after_step()

        names = ["loss", *losses.terms]
        row = torch.stack([losses.total.detach(), *losses.terms.values()])
        dist.all_reduce(row)
        if rank == 0:
            a.out.mkdir(parents=True, exist_ok=True)
            with open(a.out / "metrics.jsonl", "a", encoding="utf-8") as log:
                log.write(json.dumps({"step": step + 1, **dict(zip(names, (row / ranks).tolist()))}) + "\n")
        if (step + 1) % a.checkpoint_steps == 0 or step + 1 == a.steps:
            weights, moments = get_state_dict(whole, optimizer)
            dcp.save({"weights": weights, "moments": moments, "done": step + 1, f"loader_{rank}": loader.state_dict()},
                     checkpoint_id=a.out / f"checkpoints/step_{step + 1:07d}")

    whole_weights = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        model.save(a.out / "model.safetensors", objective, weights=whole_weights)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
