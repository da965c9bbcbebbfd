#!/usr/bin/env python3
"""Writes the cases muon_*.safetensors in this folder: five steps of torch.optim.Muon for matrices and torch.optim.AdamW for all other
parameters, in PyTorch 2.11. Needs torch (2.9 or later) and safetensors; run it in this folder.

Both iterate in bfloat16, whose products may be summed in another order on another machine, so the cases' tolerance is 2e-3."""
import json
import torch
from safetensors.torch import save_file

SHAPES = {"logit_scale": [], "text_projection": [4, 5], "token_embedding.weight": [7, 4], "transformer.resblocks.0.attn.in_proj_bias": [12],
          "transformer.resblocks.0.attn.in_proj_weight": [12, 4], "transformer.resblocks.0.mlp.c_proj.weight": [4, 16],
          "transformer.resblocks.0.ln_1.weight": [4], "visual.conv1.weight": [4, 3, 2, 2], "visual.transformer.resblocks.0.mlp.c_fc.weight": [6, 6]}
DECAYS = ("text_projection", "token_embedding.weight", "visual.conv1.weight")  # of those that AdamW updates
RATES = [0.05, 0.5, 0.4, 0.2, 0.1]
CASES = {"muon_original": {"adjust_lr_fn": "original"}, "muon_match_rms_adamw": {"adjust_lr_fn": "match_rms_adamw", "adamw_lr": 0.05},
         "muon_without_nesterov": {"adjust_lr_fn": "original", "nesterov": False, "momentum": 0.8, "ns_steps": 3}}

for name, options in CASES.items():
    torch.manual_seed(5)
    start = {each: torch.randn(shape) for each, shape in SHAPES.items()}
    grads = {each: torch.randn([len(RATES), *shape]) for each, shape in SHAPES.items()}
    parameters = {each: torch.nn.Parameter(value.clone()) for each, value in start.items()}
    matrices = [value for each, value in parameters.items() if "resblocks" in each and value.ndim == 2]
    others = {True: [], False: []}
    for each, value in parameters.items():
        if not any(value is matrix for matrix in matrices):
            others[each in DECAYS].append(value)
    torch_options = {key: value for key, value in options.items() if key != "adamw_lr"}
    muon = torch.optim.Muon(matrices, lr=0.5, weight_decay=0.2, **torch_options)
    adamw = torch.optim.AdamW([{"params": others[True], "weight_decay": 0.2}, {"params": others[False], "weight_decay": 0.0}],
                              betas=(0.9, 0.98), eps=1e-6)
    history = {each: [] for each in SHAPES}
    for step, rate in enumerate(RATES):
        for each, value in parameters.items():
            value.grad = grads[each][step].clone()
        for group in muon.param_groups:
            group["lr"] = rate
        for group in adamw.param_groups:
            group["lr"] = rate * options.get("adamw_lr", 0.5) / 0.5
        muon.step()
        adamw.step()
        for each, value in parameters.items():
            history[each].append(value.detach().clone())
    tensors = {"in.lr": torch.tensor(RATES)}
    for each, value in parameters.items():
        state = muon.state.get(value) or adamw.state[value]
        is_matrix = "momentum_buffer" in state
        tensors |= {f"param.{each}": start[each], f"in.grads.{each}": grads[each], f"out.params.{each}": torch.stack(history[each]),
                    f"out.exp_avg.{each}": state["momentum_buffer" if is_matrix else "exp_avg"],
                    f"out.weight_decay.{each}": torch.tensor(0.2 if is_matrix or each in DECAYS else 0.0)}
        if not is_matrix:
            tensors[f"out.exp_avg_sq.{each}"] = state["exp_avg_sq"]
    settings = {"lr": 0.5, "weight_decay": 0.2, "betas": [0.9, 0.98], "eps": 1e-6, **options}
    save_file({key: value.contiguous() for key, value in tensors.items()}, f"{name}.safetensors",
              {"module": "muon", "note": "five steps of torch.optim.Muon and AdamW", "rtol": "2e-3", "settings": json.dumps(settings)})
