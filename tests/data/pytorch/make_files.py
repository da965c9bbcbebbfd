#!/usr/bin/env python3
"""Writes the PyTorch files in this folder. They are in the repository, so run this script only to add files."""
import argparse
import os
import zipfile
from collections import OrderedDict
from pathlib import Path

import torch

FOLDER = Path(__file__).parent


class RunsCode:
    """An object that calls os.system when Python unpickles it."""

    def __reduce__(self):
        return os.system, ("true",)


CORPUS = FOLDER.parent.parent / "fuzz" / "corpus" / "pytorch"


def main():
    counted = torch.arange(12, dtype=torch.float32)
    layer = torch.nn.Linear(2, 2)
    state = OrderedDict(
        plain=counted.reshape(3, 4),
        turned=counted.reshape(3, 4).t(),
        every_other=counted[1::2],
        brain=torch.tensor([1.0, -2.5], dtype=torch.bfloat16),
        half=torch.tensor([0.5], dtype=torch.float16),
        long=torch.tensor([1 << 40]),
        flags=torch.tensor([True, False]),
        scalar=torch.tensor(2.5),
        empty=torch.empty(0, 3),
        parameter=torch.nn.Parameter(torch.tensor([7.0])),
    )
    state._metadata = OrderedDict({"": {"version": 1}})
    wrapped = OrderedDict(("module._orig_mod." + name, tensor) for name, tensor in state.items())
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    checkpoint = {"epoch": 3, "name": "run", "args": argparse.Namespace(lr=1e-3), "state_dict": wrapped,
                  "optimizer": optimizer.state_dict()}
    torch.save(checkpoint, FOLDER / "checkpoint.pt")
    torch.save(dict(state), FOLDER / "protocol_4.pt", pickle_protocol=4)
    torch.save(torch.nn.Sequential(layer, torch.nn.BatchNorm1d(2)), FOLDER / "module.pt")
    torch.save(dict(state_dict=dict(a=torch.ones(1), b=RunsCode())), FOLDER / "runs_code.pt")
    torch.save(dict(epoch=1, best=0.5), FOLDER / "no_model.pt")
    states = dict(epoch=1, model_ema={"module.a": torch.full((1,), 2.0)}, state_dict=dict(a=torch.ones(1)),
                  swa=dict(n_averaged=torch.tensor(5), **{"module._orig_mod.a": torch.full((1,), 3.0)}), optimizer=optimizer.state_dict())
    torch.save(states, FOLDER / "states.pt")
    torch.save(dict(ema=dict(student=dict(a=torch.ones(1)), teacher=dict(a=torch.full((1,), 2.0)))), FOLDER / "nested_states.pt")
    deeper = dict(state_dict=dict(a=torch.ones(1)), ema=dict(decay=0.9, shadow=dict(a=torch.full((1,), 2.0))))
    torch.save(deeper, FOLDER / "deeper_states.pt")
    torch.save(dict(model=dict(state_dict=dict(a=torch.ones(1)), ema=dict(a=torch.full((1,), 2.0)))), FOLDER / "states_in_model.pt")
    ema = dict(state_dict_ema=dict(a=torch.ones(1), b=torch.ones(1)), epoch=torch.tensor(3))
    torch.save(ema, FOLDER / "state_and_number.pt")
    torch.save(dict(a=torch.ones(1)), FOLDER / "before_1_6.pt", _use_new_zipfile_serialization=False)
    for name in ("checkpoint", "protocol_4", "module"):
        with zipfile.ZipFile(FOLDER / f"{name}.pt") as archive:
            (CORPUS / f"{name}.pkl").write_bytes(archive.read(f"{name}/data.pkl"))


if __name__ == "__main__":
    main()
