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
    words = F.embedding(safe, part.weight("token_embedding.weight")) * part.setting("embedding_scale", 1.0)
    x = words + text_positions(part, ids.shape[1], words.shape[2], ids.device).to(words.dtype)
    if part.has("type_embedding"):
        x = x + part.weight("type_embedding")[0]
    return zero_padding(x, mask)


def through_blocks(part, x, key_mask, causal):
    s = part.setting
    if s("pre_norm", False):
        x = part.norm("ln_pre", x, s("norm_eps", 1e-5))
    for i in range(s("layers", 12)):
        x = part.inner(f"transformer.resblocks.{i}").call(block, x, s("heads", 12), s("activation", "gelu"), s("norm_eps", 1e-5),
                                                          key_mask, causal, norms=s("block_norm", "before"))
    return part.norm("ln_final", x, s("norm_eps", 1e-5)) if s("final_norm", "tokens") == "tokens" else x


def text_transformer(part, ids, mask=None):
    if part.setting("class_token", "none") != "none":
        return text_with_class_token(part, ids, mask)
    causal = part.setting("attention", "causal") == "causal"
    # A causal text needs no mask, because padding is on the right, where causal attention does not look.
    x = through_blocks(part, embed_tokens(part, ids, mask), None if causal else mask, causal)
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
