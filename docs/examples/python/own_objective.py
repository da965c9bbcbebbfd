"""An objective and a task of your own in Python, and the loop that uses them, on one process or on the ranks of torchrun:

    python own_objective.py --model runs/mine
    torchrun --nproc-per-node 2 own_objective.py --model runs/mine
"""
import argparse
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import tessera
from tessera.objectives import gather_rows


class NearestPatch(torch.nn.Module):
    """CLIP's contrast plus the distance of words to their nearest patch."""

    # What the loss needs from each view, apart from the embeddings
    needs = {"images": {"image": ["tokens"]}, "texts": {"caption": ["tokens"]}}

    def __init__(self, word_weight=0.1):
        super().__init__()
        self.word_weight = word_weight
        self.log_scale = torch.nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, features):
        image, text = ({part: F.normalize(features[view][part].float(), dim=-1) for part in ("embeddings", "tokens")}
                       for view in ("image", "caption"))
        # Compares this rank's rows with the rows of all ranks: column rank * B + b matches row b.
        rank, count = dist.get_rank() if dist.is_initialized() else 0, len(image["embeddings"])
        right = torch.arange(count, device=self.log_scale.device) + rank * count

        def choose(rows, columns):
            return F.cross_entropy(self.log_scale.exp() * rows @ gather_rows(columns).T, right)
        contrast = (choose(image["embeddings"], text["embeddings"]) + choose(text["embeddings"], image["embeddings"])) / 2

        mask = features["caption"]["mask"]                                            # [B, L], True = a real token
        distance = 1 - (text["tokens"] @ image["tokens"].mT).amax(-1)                 # [B, L]
        nearest = (distance.masked_fill(~mask, 0).sum(1) / mask.sum(1).clamp_min(1)).mean()
        return contrast + self.word_weight * nearest


class Retrieval:
    """A task: how often the most similar caption of a batch is the image's own."""

    needs = {"images": {"image": []}, "texts": {"caption": []}}

    @torch.no_grad()
    def __call__(self, model, loader, batches=4):
        hits = []
        for _ in range(batches):
            features = model(loader.next(), self)
            images, texts = (F.normalize(features[view]["embeddings"], dim=-1) for view in ("image", "caption"))
            hits.append((images @ texts.T).argmax(1) == torch.arange(len(images), device=images.device))
        return torch.cat(hits).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="a run, a checkpoint or a model file")
    parser.add_argument("--steps", default=20, type=int)
    parser.add_argument("--batch-size", default=16, type=int)
    a = parser.parse_args()
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)

    model, objective, task = tessera.load(a.model, "cpu", blocks=True), NearestPatch(), Retrieval()
    towers, loss_of = (DistributedDataParallel(m) if ranks > 1 else m for m in (model, objective))
    shapes = {"name": "shapes", "size": 1000, "negatives": False}
    loader = tessera.Loader({**shapes, "split": "train"}, model=model, objective=objective, batch_size=a.batch_size, rank=rank, world_size=ranks)
    validation = tessera.Loader({**shapes, "split": "validation"}, model=model, objective=task, batch_size=16)
    optimizer = torch.optim.AdamW([*model.parameters(), *objective.parameters()], 1e-3)
    for step in range(a.steps):
        loss = loss_of(towers(loader.next(), objective))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if ranks > 1:
            dist.all_reduce(total)
        if rank == 0:
            print(f"step {step + 1}: loss {total.item() / ranks:.6f}, retrieval {task(model, validation):.3f}")
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
