"""The modules that `python -m tessera export` exports: the towers of a plain model, and heads that compare patches with texts."""
from __future__ import annotations

import math
from typing import Any, Iterator, Mapping, NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

# The objectives that compare patches with words or texts by `tokens` (tessera/objectives), and what the head of each of them outputs.
TOKEN_OBJECTIVES = ("sparc", "filip", "pacl", "gloria", "flair")


class Output(NamedTuple):
    """An output of an exported tower: its name in the file, its name in plain_model, and whether its rows have length 1."""

    name: str
    part: str
    unit: bool = False


class ImageTower(torch.nn.Module):
    """Maps pixel_values [B, 3, H, W], float32 and normalized, to the outputs by name, float32. If images keep their own shapes,
    pixel_values are patches [B, T, height * width * 3], with pixel_attention_mask [B, T] and spatial_shapes [B, 2] (inputs.patches_of)."""

    def __init__(self, model: torch.nn.Module, outputs: list[Output]):
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, pixel_values: Tensor, pixel_attention_mask: Optional[Tensor] = None, spatial_shapes: Optional[Tensor] = None
                ) -> dict[str, Tensor]:
        pixels = pixel_values.to(next(self.model.parameters()).dtype)
        names = [each.part for each in self.outputs]
        return _named(self.outputs, self.model.image_outputs(pixels, names, pixel_attention_mask, spatial_shapes))


class TextTower(torch.nn.Module):
    """Maps input_ids [B, L] and attention_mask [B, L], int64, 1 = a real token, to the outputs by name, float32. Without a mask, all
    tokens are real."""

    def __init__(self, model: torch.nn.Module, outputs: list[Output]):
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, input_ids: Tensor, attention_mask: Optional[Tensor] = None) -> dict[str, Tensor]:
        mask = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask != 0
        return _named(self.outputs, self.model.text_outputs(input_ids, mask, [each.part for each in self.outputs]))


def _named(outputs: list[Output], parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    out = {}
    for name, part, unit in outputs:
        x = parts[part].float()
        out[name] = F.normalize(x, dim=-1) if unit else x
    return out


class SparcHead(torch.nn.Module):
    """The weights [N, M, L, P] with which SPARC gathers an image's patches for each token of a text (Bica et al. 2024, eq. 2-4)."""

    def __init__(self, settings: Mapping[str, Any]):
        super().__init__()
        self.settings = settings

    def forward(self, image_tokens: Tensor, text_tokens: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        real = (attention_mask != 0).unsqueeze(-1)
        products = _products(image_tokens, torch.where(real, text_tokens, torch.zeros((), dtype=text_tokens.dtype)))
        if self.settings.get("weights", "minmax") == "softmax":
            weights = (products / self.settings.get("softmax_temperature", 1.0)).softmax(-1)
        else:
            weights = self.minmax(products)
        return {"word_weights": torch.where(real, weights, torch.zeros((), dtype=weights.dtype))}

    def minmax(self, products: Tensor) -> Tensor:
        threshold = self.settings.get("threshold")
        threshold = 1 / products.shape[-1] if threshold is None else threshold
        threshold = threshold if self.settings.get("sparsify", True) else 0.0
        low, high = products.amin(-1, keepdim=True), products.amax(-1, keepdim=True)
        flat = high - low <= 1e-6 * torch.maximum(low.abs(), high.abs())  # the order of such a row's patches is only noise
        z = (products - low) / (high - low).masked_fill(flat, 1.0)
        kept = z.masked_fill(z < threshold, 0.0)
        weights = kept / kept.sum(-1, keepdim=True).masked_fill(flat, 1.0)
        return weights.masked_fill(flat, 1 / products.shape[-1])


def _products(image_tokens: Tensor, text_tokens: Tensor) -> Tensor:
    """Returns the products [N, M, L, P] of the tokens [M, L, W] of all texts with the patches [N, P, W] of all images."""
    return torch.einsum("npw,mlw->nmlp", image_tokens, text_tokens)


class FilipHead(torch.nn.Module):
    """FILIP's similarities [N, M] of all images with all texts (Yao et al. 2022, eq. 4-5): the mean over patches of the largest cosine with
    a token, and the mean over tokens of the largest cosine with a patch."""

    def __init__(self, settings: Mapping[str, Any]):
        super().__init__()

    def forward(self, image_tokens: Tensor, text_tokens: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        cosines = _products(F.normalize(image_tokens, dim=-1), F.normalize(text_tokens, dim=-1))
        real = attention_mask != 0
        of_patches = cosines.masked_fill(~real[None, :, :, None], -2.0).amax(2).mean(-1)
        of_tokens = torch.where(real, cosines.amax(3), torch.zeros((), dtype=cosines.dtype)).sum(-1) / real.sum(-1)
        return {"similarity_i2t": of_patches, "similarity_t2i": of_tokens}


class PaclHead(torch.nn.Module):
    """PACL's similarity [N, M]: the cosine of each text with the sum of an image's patches, weighted by their similarity to the text
    (Mukhoti et al. 2023). text_features are the texts' embeddings before they are normalized."""

    def __init__(self, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], scale: Optional[float]):
        super().__init__()
        self.settings = settings
        temperature = settings.get("patch_temperature", 1.0)
        self.sharpness = (scale or 1.0) if temperature is None else 1 / temperature
        self.tensors = torch.nn.ParameterDict({name.replace(".", "_"): tensor.detach() for name, tensor in tensors.items()
                                               if name.startswith("embedder.")})

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.tensors[f"embedder_{name}_weight"], self.tensors[f"embedder_{name}_bias"])

    def forward(self, image_tokens: Tensor, text_features: Tensor) -> dict[str, Tensor]:
        if len(self.tensors) > 0:
            residual = self.linear("residual", image_tokens) if "embedder_residual_weight" in self.tensors else image_tokens
            image_tokens = self.linear("linear2", self.linear("linear1", image_tokens).relu()) + residual
        unit, texts = F.normalize(image_tokens, dim=-1), F.normalize(text_features, dim=-1)
        weights = (unit @ texts.T * self.sharpness).softmax(1)  # [N, P, M]
        patches = unit if self.settings.get("normalize_patches") else image_tokens
        return {"similarity": (F.normalize(weights.mT @ patches, dim=-1) * texts).sum(-1), "text_weights": weights.mT}


class GloriaHead(torch.nn.Module):
    """GLoRIA's similarity [N, M] of words with the patches that they attend to, and the weights [N, M, L, P] (Huang et al. 2021)."""

    def __init__(self, settings: Mapping[str, Any], scale: Optional[float]):
        super().__init__()
        self.settings = settings
        temperature = settings.get("score_temperature", 0.2)
        self.sharpness = (scale or 1.0) if temperature is None else 1 / temperature

    def forward(self, image_tokens: Tensor, text_tokens: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        real = attention_mask != 0
        products = _products(image_tokens, text_tokens)
        if self.settings.get("similarity_scale", "sqrt_dim") == "sqrt_dim":
            products = products / math.sqrt(text_tokens.shape[2])
        if self.settings.get("word_softmax"):
            products = products.masked_fill(~real[None, :, :, None], torch.finfo(products.dtype).min).softmax(2)
        weights = (products / self.settings.get("attention_temperature", 0.25)).softmax(-1)
        context = torch.einsum("nmlp,npw->nmlw", weights, image_tokens)
        likeness = (F.normalize(context, dim=-1) * F.normalize(text_tokens, dim=-1)).sum(-1)
        score = (likeness * self.sharpness).masked_fill(~real, torch.finfo(likeness.dtype).min).logsumexp(-1)
        if self.settings.get("word_reduction", "sum") == "mean":
            score = score - real.sum(1).clamp_min(1).to(score.dtype).log()
        return {"similarity": score / self.sharpness if self.settings.get("scale_score") else score, "word_weights": weights}


class FlairHead(torch.nn.Module):
    """FLAIR's pool (Xiao et al. 2025, section 3.2): each image pooled for each text, [N, M, D] of length 1, their cosine with the texts
    [N, M], and how much each text attends to each patch [N, M, P]. text_features are the texts' embeddings before they are normalized."""

    def __init__(self, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]):
        super().__init__()
        self.heads, self.zero_token = settings.get("heads", 8), settings.get("zero_token", True)
        self.tensors = torch.nn.ParameterDict({name.replace(".", "_"): tensor.detach() for name, tensor in tensors.items()})

    def project(self, norm: str, place: int, x: Tensor) -> Tensor:
        weight, bias = (self.tensors[f"attn_in_proj_{kind}"].chunk(3)[place] for kind in ("weight", "bias"))
        x = F.layer_norm(x, x.shape[-1:], self.tensors[f"ln_{norm}_weight"], self.tensors[f"ln_{norm}_bias"])
        return F.linear(x, weight, bias).unflatten(-1, (self.heads, -1)).transpose(-3, -2)  # [.., H, n, d]

    def forward(self, image_tokens: Tensor, text_features: Tensor) -> dict[str, Tensor]:
        q, k, v = self.project("q", 0, text_features), self.project("k", 1, image_tokens), self.project("v", 2, image_tokens)
        scores = q @ k.mT / math.sqrt(k.shape[-1])  # [N, H, M, P]
        weights = F.pad(scores, (0, int(self.zero_token))).softmax(-1)[..., :k.shape[2]]
        heads = (weights @ v).transpose(1, 2).flatten(2)  # [N, M, D]
        pooled = F.normalize(F.linear(heads, self.tensors["attn_out_proj_weight"], self.tensors["attn_out_proj_bias"]), dim=-1)
        similarity = (pooled * F.normalize(text_features, dim=-1)).sum(-1)
        return {"similarity": similarity, "pooled_embeds": pooled, "text_attention": weights.mean(1)}


class Objective(NamedTuple):
    name: str
    settings: Mapping[str, Any]
    tensors: dict[str, Tensor]


def token_objective(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Optional[Objective]:
    """Returns the first objective of a run's configuration, possibly inside of a weighted sum, that compares patches with words or texts,
    with its tensors. A model file without a configuration has only FLAIR's, which its tensors show."""
    for prefix, settings in _objectives(config.get("objective"), ""):
        if settings.get("name") in TOKEN_OBJECTIVES:
            own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            return Objective(settings["name"], settings, _of_pool(own) if settings["name"] == "flair" else own)
    mark = "pool.ln_q.weight"
    if any(name == mark or name.endswith("." + mark) for name in tensors):
        pool = {name[name.rindex("pool."):]: tensor for name, tensor in tensors.items() if "pool." in name}
        return Objective("flair", {}, _of_pool(pool))
    return None


def _of_pool(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("pool."): tensor for name, tensor in tensors.items() if name.startswith("pool.")}


def _objectives(settings: Any, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(settings, Mapping):
        return
    yield prefix, settings
    for term in settings.get("objectives") or []:
        yield from _objectives(term, f"{prefix}objectives.{term.get('label') or term.get('name')}.")


def head_of(objective: Optional[Objective], scale: Optional[float]) -> Optional[torch.nn.Module]:
    """Returns the head of an objective from token_objective(). `scale` is the model's learned factor of cosines, if it has one."""
    if objective is None:
        return None
    name, settings, tensors = objective
    if name in ("pacl", "flair"):
        return PaclHead(settings, tensors, scale) if name == "pacl" else FlairHead(settings, tensors)
    return {"sparc": SparcHead, "filip": FilipHead}[name](settings) if name != "gloria" else GloriaHead(settings, scale)
