"""Text encoders of plain models, which map ids [B, L] and a mask [B, L] to Encoded."""
import math

import torch
import torch.nn.functional as F

from .blocks import Encoded, block, grouping, zero_padding


def text_positions(part, length, width, device):
    first = part.setting("position_offset", 0)
    if part.has("positional_embedding"):
        return part.weight("positional_embedding")[first:first + length]
    speeds = torch.exp(torch.arange(width // 2, device=device) * (-math.log(10000.0) / (width // 2 - 1)))
    angles = torch.arange(first, first + length, device=device)[:, None] * speeds
    return torch.cat([angles.sin(), angles.cos()], 1)


def embed_tokens(part, ids, mask):
    safe = ids if mask is None else ids.masked_fill(~mask, 0)
    x = F.embedding(safe, part.weight("token_embedding.weight")) * part.setting("embedding_scale", 1.0)
    if part.setting("position_embedding", "learned") in ("learned", "sinusoidal"):
        x = x + text_positions(part, ids.shape[1], x.shape[2], ids.device).to(x.dtype)
    if part.has("type_embedding"):
        x = x + part.weight("type_embedding")[0]
    return zero_padding(x, mask)


def score_bias(part, length, device):
    """Returns the relative position biases [1, heads, length, length] of T5 (Raffel et al. 2020)."""
    s = part.setting
    half, farthest = s("relative_buckets", 32) // 2, s("relative_distance", 128)
    single = half // 2  # distances with a bias of their own; the others share the biases of ranges
    distance = torch.arange(length, device=device)[None] - torch.arange(length, device=device)[:, None]
    away = distance.abs()
    ranges = (torch.log(away.clamp_min(1).float() / single) / math.log(farthest / single) * (half - single)).long()
    bucket = torch.where(away < single, away, (single + ranges).clamp_max(half - 1)) + (distance > 0).long() * half
    return F.embedding(bucket, part.weight("relative_bias")).permute(2, 0, 1)[None]


def text_blocks(part, length, mask, causal, device):
    """Returns a function of a block's number that returns the mask and rotation of its attention, and whether attention is causal."""
    s, local = part.setting, part.settings.get("local")
    bias = score_bias(part, length, device) if s("position_embedding", "learned") == "relative" else None

    def attention(window):
        if bias is None and not window:
            return (None if causal else mask), causal
        away = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)[None]
        allowed = (away.abs() <= window) if window else torch.ones_like(away, dtype=torch.bool)
        allowed = allowed & (away >= 0) if causal else allowed
        allowed = allowed[None, None] if mask is None else (allowed & mask[:, None, None]) | (away == 0)
        return (allowed if bias is None else bias.masked_fill(~allowed, -math.inf)), False

    def rotation(base):
        if s("position_embedding", "learned") != "rotary":
            return None
        width = s("head_width", s("width", 512) // s("heads", 8))
        angles = torch.arange(length, device=device)[:, None] * base ** -(torch.arange(0, width, 2, device=device) / width)
        return angles.cos(), angles.sin(), s("rotary_pairs", "neighbors")

    everywhere = (*attention(0), rotation(s("rotary_base", 10000.0)))
    near = (*attention(local.get("window", 64)), rotation(local.get("rotary_base", 10000.0))) if local else everywhere
    return lambda i: near if local and i in local["blocks"] else everywhere


def through_blocks(part, x, key_mask, causal, of_block=None):
    s = part.setting
    if s("pre_norm", False):
        x = part.norm("ln_pre", x, s("norm_eps", 1e-5))
    for i in range(s("layers", 12)):
        key_mask, causal, rotation = of_block(i) if of_block else (key_mask, causal, None)
        x = part.inner(f"transformer.resblocks.{i}").call(block, x, s("heads", 12), s("activation", "gelu"), s("norm_eps", 1e-5),
                                                          key_mask, causal, rotation=rotation, norms=s("block_norm", "before"))
    return part.norm("ln_final", x, s("norm_eps", 1e-5)) if s("final_norm", "tokens") == "tokens" else x


def text_transformer(part, ids, mask=None):
    if part.setting("class_token", "none") != "none":
        return text_with_class_token(part, ids, mask)
    causal = part.setting("attention", "causal") == "causal"
    # A causal text needs no mask, because padding is on the right, where causal attention does not look.
    of_block = text_blocks(part, ids.shape[1], mask, causal, ids.device)
    x = through_blocks(part, embed_tokens(part, ids, mask), None, causal, of_block)
    return Encoded(zero_padding(x, mask), None, mask, ids)


def text_with_class_token(part, ids, mask):
    """CoCa's texts, which end with a class token at the last position, so they are padded to full length."""
    length, given = ids.shape[1], mask
    mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
    missing = (0, part.setting("context_length", 77) - length)
    words = F.embedding(F.pad(ids.masked_fill(~mask, 0), missing), part.weight("token_embedding.weight"))
    x = torch.cat([words, part.weight("cls_emb").expand(ids.shape[0], 1, -1)], 1) + part.weight("positional_embedding")
    mask, always = F.pad(mask, missing), mask.new_ones(mask.shape[0], 1)
    keys = torch.cat([always, mask] if part.setting("class_token", "none") == "shifted" else [mask, always], 1)
    x = through_blocks(part, x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril() & keys[:, None, None], False)
    return Encoded(zero_padding(x[:, :length], given), x[:, -1], given, ids)


def text_group_encoder(part, ids, mask=None):
    s = part.setting
    tokens = embed_tokens(part, ids, mask)
    group_tokens = part.weight("group_tokens").expand(ids.shape[0], -1, -1)
    x = torch.cat([tokens, group_tokens], 1)
    keys = None if mask is None else torch.cat([mask, mask.new_ones(group_tokens.shape[:2])], 1)

    def through(name, count, y, key_mask):
        for i in range(count):
            y = part.inner(f"{name}.{i}").call(block, y, s("heads", 4), s("activation", "gelu"), key_mask=key_mask)
        return y

    x = through("token_blocks", s("token_layers", 6), x, keys)
    groups = grouping(part.inner("grouping"), x[:, :ids.shape[1]], x[:, ids.shape[1]:], mask, s("heads", 4),
                      s("variant", "plain"), s("hard", True), s("assign_eps", None))
    return Encoded(part.norm("ln_final", through("group_blocks", s("group_layers", 3), groups, None)))


ENCODERS = {"text_transformer": text_transformer, "text_group_encoder": text_group_encoder}
