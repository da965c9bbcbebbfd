#!/usr/bin/env python3
"""Writes openai/vit.pt and openai/resnet.pt, TorchScript archives like those of OpenAI's CLIP with random half-precision weights, and the
embeddings that open_clip computes with them. Needs torch, open_clip_torch and safetensors; run it in this folder."""
import pathlib
import torch
from open_clip.model import build_model_from_openai_state_dict
from safetensors.torch import save_file
import open_clip.model as oc

TEXT = dict(context_length=8, vocab_size=40, width=64, heads=1, layers=1)


class Holder(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor: return x


def module_of(state):
    """Returns a module with these tensors but without CLIP's code, because Tessera reads only the tensors."""
    root = Holder()
    for name, tensor in state.items():
        place = root
        *path, last = name.split(".")
        for part in path:
            if not hasattr(place, part): place.add_module(part, Holder())
            place = getattr(place, part)
        if tensor.is_floating_point() and "running" not in last: place.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))
        else: place.register_buffer(last, tensor)
    return root


def write(name, vision, size, seed):
    torch.manual_seed(seed)
    model = oc.CLIP(16, vision, TEXT, quick_gelu=True)
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, v in model.state_dict().items():
            if not v.is_floating_point(): continue
            v.copy_(0.5 + torch.rand(v.shape, generator=g) if "running_var" in key else v + 0.05 * torch.randn(v.shape, generator=g))
    state = {k: v.half() if v.is_floating_point() else v for k, v in model.state_dict().items()}
    numbers = {"input_resolution": size, "context_length": TEXT["context_length"], "vocab_size": TEXT["vocab_size"]}
    torch.jit.save(torch.jit.script(module_of(state | {k: torch.tensor(v) for k, v in numbers.items()})), f"openai/{name}.pt")
    reference = build_model_from_openai_state_dict({k: v.clone() for k, v in state.items()}, quick_gelu=True, cast_dtype=torch.float32).float().eval()
    x = torch.randn(2, 3, size, size, generator=g); ids = torch.randint(1, 38, (3, 8), generator=g); ids[:, -2] = 39; ids[:, -1] = 0
    with torch.no_grad(): out = {"pixels": x, "image": reference.encode_image(x), "ids": ids, "text": reference.encode_text(ids)}
    save_file({k: v.contiguous() for k, v in out.items()}, f"openai/{name}.safetensors")
    print(name, pathlib.Path(f"openai/{name}.pt").stat().st_size)


if __name__ == "__main__":
    pathlib.Path("openai").mkdir(exist_ok=True)
    write("vit", dict(image_size=16, patch_size=8, width=64, layers=2, head_width=64), 16, 1)
    write("resnet", dict(image_size=64, layers=(1, 1, 2, 1), width=2, head_width=64), 64, 2)
