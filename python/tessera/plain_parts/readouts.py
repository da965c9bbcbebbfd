"""Read-outs of plain models, which map Encoded to [B, D], and projections, which map [B, D] to [B, E]."""
import math

import torch
import torch.nn.functional as F

from .blocks import activate, attend, multi_head_attention, zero_padding


def with_class_token(encoded):
    """Returns the class token and the tokens [B, 1 + N, w], and their mask."""
    if encoded.class_token is None:
        return encoded.tokens, encoded.mask
    mask = encoded.mask
    if mask is not None:
        mask = torch.cat([mask.new_ones(mask.shape[0], 1), mask], 1)
    return torch.cat([encoded.class_token[:, None], encoded.tokens], 1), mask


def token_at(encoded, index):
    token = encoded.tokens[torch.arange(index.shape[0], device=index.device), index]
    if encoded.mask is None:
        return token
    return token * encoded.mask.gather(1, index[:, None])


def end_of_text(encoded, position, eos_id):
    ids, mask = encoded.ids, encoded.mask
    if eos_id is not None:
        found = ids.eq(eos_id) if mask is None else ids.eq(eos_id) & mask
        return found.to(torch.uint8).argmax(1)
    if position == "ids" or mask is None:
        return (ids if mask is None else ids.masked_fill(~mask, torch.iinfo(torch.int64).min)).argmax(1)
    return torch.arange(mask.shape[1], device=mask.device).masked_fill(~mask, 0).amax(1)


def pool(encoded, name, settings):
    if name == "cls":
        first = torch.zeros(encoded.tokens.shape[0], dtype=torch.int64, device=encoded.tokens.device)
        return encoded.class_token if encoded.class_token is not None else token_at(encoded, first)
    if name == "eos":
        return token_at(encoded, end_of_text(encoded, settings.get("position", "mask"), settings.get("eos_id")))
    skip = max(0, settings.get("skip_prefix", 0) - (encoded.class_token is not None))
    tokens, mask = encoded.tokens[:, skip:], None if encoded.mask is None else encoded.mask[:, skip:]
    if mask is None:
        return tokens.mean(1) if name == "gap" else tokens.amax(1)
    if name == "gap":
        return zero_padding(tokens, mask).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)
    largest = tokens.masked_fill(~mask[..., None], -math.inf).amax(1)
    return torch.where(mask.any(1, keepdim=True), largest, torch.zeros((), device=tokens.device))


def pooled(name):
    def readout(part, encoded):
        x = pool(encoded, name, part.settings)
        return x @ part.weight("readout.proj") if part.has("readout.proj") else x
    return readout


def attention_pool_2d(part, encoded):
    part = part.inner("attnpool")
    x = torch.cat([encoded.tokens.mean(1, keepdim=True), encoded.tokens], 1) + part.weight("positional_embedding")
    return multi_head_attention(part, x[:, :1], x, part.setting("heads", 32), out="c_proj").squeeze(1)


def attentional_pool(part, encoded):
    inner, (tokens, mask) = part.inner("attn_pool"), with_class_token(
        encoded._replace(tokens=zero_padding(encoded.tokens, encoded.mask)))
    query = inner.norm("ln_q", inner.weight("query"))[None]
    x = multi_head_attention(inner.inner("attn"), query, inner.norm("ln_k", tokens), part.setting("heads", 8), mask)
    project = part.setting("project", True)
    x = part.norm("ln_post", x) if project else x
    x = x[:, 0] if part.setting("pool", "first") == "first" else x.mean(1)
    return x @ part.weight("proj") if project else x


def cls_mean(part, encoded):
    return torch.cat([encoded.class_token, pool(encoded, "gap", {})], 1)


def map_pool(part, encoded):
    """SigLIP's read-out: one learned query attends to all tokens, and an MLP follows."""
    inner, (tokens, mask) = part.inner("attn_pool"), with_class_token(
        encoded._replace(tokens=zero_padding(encoded.tokens, encoded.mask)))
    x = multi_head_attention(inner.inner("attention"), inner.weight("probe")[None, None], tokens, part.setting("heads", 12), mask)
    if part.setting("attention_only", False):
        return x.squeeze(1) if mask is None else zero_padding(x.squeeze(1), mask.any(1))
    mlp, normed = inner.inner("mlp"), inner.norm("layernorm", x, part.setting("norm_eps", 1e-6))
    x = (x + mlp.linear("c_proj", activate(mlp.linear("c_fc", normed), part.setting("activation", "gelu")))).squeeze(1)
    return x if mask is None else zero_padding(x, mask.any(1))


def sparo_slots(part, encoded):
    """Returns the slots [B, L, E], not normalized."""
    s = part.setting
    part = part.inner("sparo" if part.has("sparo.q_emb") else "text_sparo")
    tokens, mask = with_class_token(encoded)
    tokens = zero_padding(tokens, mask)
    slots, group = s("slots", 64), s("group_size", 1)
    keys = part.linear("k", tokens).unflatten(-1, (slots // group, -1))                 # [B, N, P, D]
    values = keys if s("share_values", True) else part.linear("v", tokens).unflatten(-1, (slots // group, -1))
    queries = part.weight("q_emb").view(slots // group, group, -1)                      # [P, G, D]
    scores = torch.einsum("pgd,bnpd->bpgn", queries, keys) / math.sqrt(queries.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], -math.inf)
    x = torch.einsum("bpgn,bnpe->bpge", scores.softmax(-1).nan_to_num(0), values).flatten(1, 2)  # [B, L, E]
    together = lambda wanted, f, y: f(y.flatten(1)).unflatten(1, (slots, -1)) if wanted else f(y)
    if part.has("out_proj.weight"):
        x = together(True, lambda y: part.linear("out_proj", y), x)
    if part.has("ln.weight"):
        x = together(s("layer_norm", "none") == "full", lambda y: part.norm("ln", y), x)
    return together(s("projection", "slot") == "full", lambda y: part.linear("proj", y), x)


def sparo(part, encoded):
    slots = sparo_slots(part, encoded)
    return F.normalize(slots, dim=-1).flatten(1) / math.sqrt(slots.shape[1]) if part.setting("normalize_slots", True) else slots.flatten(1)


def linear_bottleneck(part, encoded):
    x = pool(encoded, part.setting("pool", "cls"), part.settings) @ part.weight("readout.proj")
    return part.linear("readout.bottleproj", x)


def sparsemax(x):
    x = x - x.amax(-1, keepdim=True)
    ordered = x.sort(-1, descending=True).values
    sums, places = ordered.cumsum(-1), torch.arange(1, x.shape[-1] + 1, device=x.device)
    last = ((1 + places * ordered > sums) * places).amax(-1, keepdim=True)
    return (x - (sums.gather(-1, last - 1) - 1) / last).clamp_min(0)


def fdt(part, encoded):
    s, parts = part.setting, part.inner("readout.q_map")
    skip = max(0, s("skip_prefix", 0) - (encoded.class_token is not None))
    tokens, mask = encoded.tokens[:, skip:], None if encoded.mask is None else encoded.mask[:, skip:]
    codes = part.weights.get("readout.space_dict", part.weights.get("visual.readout.space_dict"))  # stored once for both towers
    x = parts.norm("3", F.gelu(parts.linear("1", parts.norm("0", zero_padding(tokens, mask)))))
    x = parts.linear("4", x) / (math.sqrt(s("code_width", 512)) * s("temperature", 1000.0))
    scores = x @ codes.t()
    if mask is not None:
        lowest = 0.0 if s("masked_score", "exclude") == "zero" else torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask[..., None], lowest)
    scores = scores.amax(1)
    if mask is not None:
        scores = scores.masked_fill(~mask.any(1, keepdim=True), 0)
    weights = sparsemax(scores) if s("activation", "sparsemax") == "sparsemax" else scores.softmax(-1)
    return weights @ codes


def mlp_head(part, x):
    if part.has("linear_hidden.0.weight"):
        x = part.linear("linear_hidden.0", x)
        if part.has("linear_hidden.1.weight"):
            x = part.batch_norm("linear_hidden.1", x.flatten(0, -2)).view(x.shape)
        x = activate(x, part.setting("activation", "relu"))
    return part.linear("linear_out", x)


def groups(part, encoded):
    head = part.inner("readout.head")
    if part.setting("pool", "after") == "before":
        return mlp_head(head, encoded.tokens.mean(1))
    return mlp_head(head, encoded.tokens).mean(1)


def token_projection(part, encoded):
    """STAIR's read-out: a weight for each token of the vocabulary, from products with the text tower's token table."""
    head = part.inner("readout")
    x = F.gelu(head.linear("transform.dense", zero_padding(encoded.tokens, encoded.mask)))
    x = head.norm("transform.norm", x, part.setting("layer_norm_eps", 1e-12))
    bias = head.weight("bias")
    if part.setting("special_token_ids", []):
        bias = bias.index_fill(0, torch.tensor(part.settings["special_token_ids"], device=bias.device), -math.inf)
    x = F.linear(x, part.weights["token_embedding.weight"], bias)
    if encoded.mask is not None:
        x = x.masked_fill(~encoded.mask[..., None], -math.inf)
    return torch.log1p(F.relu(x.amax(1)))


# ---- projections, which map [B, D] to [B, E]

def linear_projection(part, x):
    name = "proj" if part.has("proj") else "text_projection"
    x = x @ part.weight(name)
    return x + part.weight(name + "_bias") if part.has(name + "_bias") else x


def adaptor(part, x):
    if part.has("global_head.weight"):
        x = F.gelu(part.linear("global_head", x))
    return part.linear("adaptor", x)


def project_tokens(name, part, x):
    """Projects tokens as losses on tokens compare them."""
    if name == "adaptor":
        return part.linear("adaptor", x)
    return linear_projection(part, x) if name == "linear" else x


def group_slots(part, encoded):
    """Returns the projected groups [B, K, E]."""
    return mlp_head(part.inner("readout.head"), encoded.tokens)


READOUTS = {"cls": pooled("cls"), "eos": pooled("eos"), "gap": pooled("gap"), "max": pooled("max"),
            "attention_pool_2d": attention_pool_2d, "attentional_pool": attentional_pool, "sparo": sparo, "cls_mean": cls_mean,
            "map": map_pool, "linear_bottleneck": linear_bottleneck, "fdt": fdt, "groups": groups, "token_projection": token_projection,
            "none": lambda part, encoded: None}
SLOTS = {"sparo": sparo_slots, "groups": group_slots}
PROJECTIONS = {"none": lambda part, x: x, "linear": linear_projection, "adaptor": adaptor,
               "mlp": lambda part, x: mlp_head(part.inner("head"), x)}
