"""Building blocks of plain models: a model's weights by their names, attention, transformer blocks, grouping."""
import collections
import collections.abc
import functools
import math

import torch
import torch.nn.functional as F

Encoded = collections.namedtuple("Encoded", "tokens class_token mask ids", defaults=(None, None, None))


class Node(torch.nn.Module):
    """A module that holds tensors. Whoever computes with those of a block calls the block's node with the function to compute, so that
    hooks on the block run (fully_shard, checkpoint_wrapper)."""

    def forward(self, compute, *inputs, **options):
        return compute(*inputs, **options)


class Weights(collections.abc.Mapping):
    """The tensors of a module by their names. They are looked up anew each time, because Module.to() and torch.export replace them."""

    def __init__(self, module, tensors):
        self.places, self.module = {}, module
        for name, tensor in tensors.items():
            *parents, leaf = name.split(".")
            inner = module
            for parent in parents:
                if parent not in inner._modules:
                    inner.add_module(parent, Node())
                inner = inner._modules[parent]
            if tensor.is_floating_point() and not leaf.startswith("running_"):
                inner.register_parameter(leaf, torch.nn.Parameter(tensor, requires_grad=False))
                self.places[name] = inner._parameters, leaf
            else:
                inner.register_buffer(leaf, tensor)
                self.places[name] = inner._buffers, leaf

    def __getitem__(self, name):
        store, leaf = self.places[name]
        return store[leaf]

    def __iter__(self):
        return iter(self.places)

    def __len__(self):
        return len(self.places)


class Part:
    """Settings, and the weights whose names have a common prefix."""

    def __init__(self, weights, prefix, settings):
        self.weights, self.prefix, self.settings = weights, prefix, settings

    def inner(self, name):
        return Part(self.weights, self.prefix + name + ".", self.settings)

    def call(self, compute, *inputs, **options):
        """Returns compute(self, ...), called through the module that holds these weights."""
        node = self.weights.module.get_submodule(self.prefix[:-1])
        return node(functools.partial(compute, self), *inputs, **options)

    def weight(self, name):
        return self.weights[self.prefix + name]

    def has(self, name):
        return self.prefix + name in self.weights

    def setting(self, name, default):
        value = self.settings.get(name)
        return default if value is None else value

    def get(self, name):
        return self.weights.get(self.prefix + name)

    def linear(self, name, x):
        return F.linear(x, self.weight(name + ".weight"), self.weights.get(f"{self.prefix}{name}.bias"))

    def norm(self, name, x, eps=1e-5):
        weight = self.weight(name + ".weight")
        if "rms" in (self.settings.get("norm"), self.settings.get("qk_norm")):
            return F.rms_norm(x, weight.shape, weight, eps)
        return F.layer_norm(x, weight.shape, weight, self.get(name + ".bias"), eps)

    def norm_of_map(self, name, x, eps):
        """Normalizes the channels of a map [B, C, H, W] at each position."""
        return self.norm(name, x.permute(0, 2, 3, 1), eps).permute(0, 3, 1, 2)

    def batch_norm(self, name, x):
        part = self.inner(name)
        return F.batch_norm(x, part.weight("running_mean"), part.weight("running_var"), part.weight("weight"),
                            part.weight("bias"))

    def conv(self, name, x, **options):
        return F.conv2d(x, self.weight(name + ".weight"), self.weights.get(f"{self.prefix}{name}.bias"), **options)


def activate(x, name):
    if name == "quick_gelu":
        return x * torch.sigmoid(1.702 * x)
    if name in ("silu", "relu"):
        return getattr(F, name)(x)
    return F.gelu(x, approximate="tanh" if name == "gelu_tanh" else "none")


def zero_padding(x, mask):
    return x if mask is None else torch.where(mask.unsqueeze(-1), x, torch.zeros((), dtype=x.dtype, device=x.device))


def attend(q, k, v, heads, key_mask=None, causal=False):
    """Computes multi-head attention of q [B, N, w] to k and v [B, M, w]. Rows without a real key get zeros."""
    split = lambda x: x.unflatten(-1, (heads, -1)).transpose(1, 2)
    allowed = has_key = None
    if key_mask is not None and key_mask.dim() == 4:  # a mask of queries and keys
        allowed = key_mask
    elif key_mask is not None:
        real = key_mask[:, None, None, :]
        has_key = real.any(-1, keepdim=True)
        allowed = real | ~has_key
    out = F.scaled_dot_product_attention(split(q), split(k), split(v), attn_mask=allowed, is_causal=causal)
    if has_key is not None:
        out = torch.where(has_key, out, torch.zeros((), dtype=out.dtype, device=out.device))
    return out.transpose(1, 2).flatten(2)


def multi_head_attention(part, query, keys, heads, key_mask=None, out="out_proj"):
    """Takes the weights from one matrix (in_proj_weight), three matrices (q_proj_weight, ...) or three linear layers (q_proj, ...). There
    may be norms of queries and keys, and no last projection."""
    if part.has("q_proj.weight"):
        weights = [part.weight(f"{x}_proj.weight") for x in "qkv"]
        biases = [part.weight(f"{x}_proj.bias") for x in "qkv"]
    else:
        whole = part.has("in_proj_weight")
        weights = part.weight("in_proj_weight").chunk(3) if whole else [part.weight(f"{x}_proj_weight") for x in "qkv"]
        biases = part.weight("in_proj_bias").chunk(3) if part.has("in_proj_bias") else [None] * 3
    q = F.linear(query, weights[0], biases[0]).expand(keys.shape[0], -1, -1)
    k, v = (F.linear(keys, weights[i], biases[i]) for i in (1, 2))
    if part.has("q_norm.weight"):
        q, k = (part.norm(name, y.unflatten(-1, (heads, -1)), part.setting("norm_eps", 1e-6)).flatten(-2) for name, y in (("q_norm", q), ("k_norm", k)))
    y = attend(q, k, v, heads, key_mask)
    return part.linear(out, y) if part.has(out + ".weight") else y


def rotated(x, heads, rotation):
    """Rotates the channels of each head in pairs, by the angles whose cosines and sines [N, pairs] or [B, N, pairs] are
    given."""
    if rotation is None:
        return x
    cosine, sine, pairs = rotation
    cosine, sine = cosine.unsqueeze(-2).to(x.dtype), sine.unsqueeze(-2).to(x.dtype)
    x = x.unflatten(-1, (heads, -1))
    a, b = x.chunk(2, -1) if pairs == "halves" else x.unflatten(-1, (-1, 2)).unbind(-1)
    turned = (a * cosine - b * sine, b * cosine + a * sine)
    return (torch.cat(turned, -1) if pairs == "halves" else torch.stack(turned, -1).flatten(-2)).flatten(-2)


def self_attention(part, x, heads, eps, key_mask, causal, rotation):
    weight, bias = part.weight("in_proj_weight"), part.get("in_proj_bias")
    key_heads = part.setting("key_heads", heads)
    width = weight.shape[0] // (heads + 2 * key_heads)  # of a head
    sizes = [heads * width, key_heads * width, key_heads * width]
    parts = [part.get(name + "_bias") for name in "qkv"]
    if any(each is not None for each in parts):
        bias = torch.cat([weight.new_zeros(size) if each is None else each for each, size in zip(parts, sizes)])
    q, k, v = F.linear(x, weight, bias).split(sizes, -1)
    if part.has("q_norm.weight"):
        q, k = (part.norm(name, y.unflatten(-1, (-1, width)), eps).flatten(-2) for name, y in (("q_norm", q), ("k_norm", k)))
    q, k = rotated(q, heads, rotation), rotated(k, key_heads, rotation)
    q = q * (part.settings["score_scale"] * math.sqrt(width)) if part.settings.get("score_scale") else q
    if key_heads != heads:
        k, v = (y.unflatten(-1, (key_heads, width)).repeat_interleave(heads // key_heads, -2).flatten(-2) for y in (k, v))
    y = attend(q, k, v, heads, key_mask, causal)
    y = part.norm("norm", y, eps) if part.has("norm.weight") else y
    return part.linear("out_proj", y * part.linear("gate", x).sigmoid() if part.has("gate.weight") else y)


def gated_or_plain_mlp(part, x, activation, eps):
    x = part.norm("norm_in", x, eps) if part.has("norm_in.weight") else x
    inner = part.linear("c_fc", x)
    hidden = activate(part.linear("c_gate", x), activation) * inner if part.has("c_gate.weight") else activate(inner, activation)
    return part.linear("c_proj", part.norm("norm", hidden, eps) if part.has("norm.weight") else hidden)


def block(part, x, heads, activation, eps=1e-5, key_mask=None, causal=False, feed_forward=None, rotation=None, norms="before"):
    """A transformer block under OpenCLIP's names. `norms` says where its norms are, as the setting block_norm does."""
    def updated(x, name, compute):
        norm, scale = (lambda y: part.norm("ln_" + name, y, eps)), part.get(f"ls_{name}.gamma")
        y = compute(norm(x) if norms in ("before", "both") and part.has(f"ln_{name}.weight") else x)
        y = norm(y) if norms == "on_updates" else y
        y = part.norm(f"ln_{name}_post", y, eps) if norms == "both" else y
        x = x + (y if scale is None else y * scale)
        return norm(x) if norms == "after" else x

    x = updated(x, "1", lambda y: self_attention(part.inner("attn"), y, heads, eps, key_mask, causal, rotation))
    return updated(x, "2", lambda y: feed_forward(part.inner("mlp"), y) if feed_forward else
                   gated_or_plain_mlp(part.inner("mlp"), y, activation, eps))


def fc_mlp(part, x):
    return part.linear("fc2", F.gelu(part.linear("fc1", x)))

def assign(part, groups, tokens, mask, hard, eps):
    """Assigns each token to one group (hard), or to all groups by a softmax over them; returns the update of the groups."""
    scores = part.linear("q_proj", groups) @ part.linear("k_proj", tokens).mT / math.sqrt(groups.shape[2])
    weights = scores.softmax(1)
    if hard:
        weights = torch.zeros_like(weights).scatter_(1, weights.argmax(1, keepdim=True), 1)
    if mask is not None:
        weights = weights.masked_fill(~mask[:, None], 0)
    total = weights.sum(2, keepdim=True) + eps
    weights = weights / total.masked_fill(total == 0, 1)
    return part.linear("proj", weights @ part.linear("v_proj", tokens))


def grouping(part, tokens, groups, mask, heads, variant, hard=True, eps=None):
    tokens = zero_padding(tokens, mask)
    if variant == "plain":
        return groups + assign(part.inner("assign"), groups, tokens, mask, hard, eps or 0)
    x = part.norm("norm_x", tokens)
    fewer = part.norm("norm_post_tokens", fc_mlp(part.inner("mlp_inter"), part.norm("norm_tokens", groups).mT).mT)
    before = part.inner("pre_assign_attn")
    look = before.inner("attn")
    q, k, v = look.linear("q_proj", fewer), look.linear("k_proj", x), look.linear("v_proj", x)
    queries = fewer + look.linear("proj", attend(q, k, v, heads, mask))
    queries = before.norm("norm_post", queries + fc_mlp(before.inner("mlp"), before.norm("norm2", queries)))
    updated = queries + assign(part.inner("assign"), queries, x, mask, hard, 1 if eps is None else eps)
    return updated + fc_mlp(part.inner("mlp_channels"), part.norm("norm_new_x", updated))
