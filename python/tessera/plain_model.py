"""Loads a model trained by Tessera in plain PyTorch: it builds towers and read-outs from one model file and needs no other package.

    import torch, tessera
    model = tessera.plain_model.load("model.safetensors")        # a model file, or a checkpoint's model.safetensors
    images = model.encode_image(torch.stack([model.preprocess("cat.jpg")]))    # [B, D], Pillow reads the image
    texts = model.encode_text(ids, mask)                   # arguments: ids int64 [B, L]; mask bool [B, L], True for real tokens
    similarity = torch.nn.functional.cosine_similarity(images, texts)

Embeddings equal Tessera's to 1e-5 in float32. `image_outputs` and `text_outputs` also return the embeddings of patches and tokens, and
slots. The model is a torch.nn.Module, whose parameters have the file's names (OpenCLIP's names, where OpenCLIP has such a part); to
fine-tune, run `model.requires_grad_()`.

Texts: `model.tokenizer` has the tokenizer's settings and `model.vocabulary` the bytes of its file. Cut a text to
`context_length` ids so that the end token stays last; pad on the right, with mask False.
    clip-bpe       OpenCLIP's SimpleTokenizer (the file is its bpe_simple_vocab_16e6.txt.gz); `cleanup`: full = ftfy.fix_text,
                   basic = only HTML entities and white space; start and end token around the text, padding is 0
    sentencepiece  the sentencepiece package: SentencePieceProcessor(model_proto=model.vocabulary); `add_bos`, `add_eos`
    wordpiece      BERT's: transformers.BertTokenizer(vocab_file=...); [CLS] and [SEP] around the text

Self-check against embeddings from Tessera:
    tessera-embed --checkpoint model.safetensors --images *.jpg --out embeddings.safetensors
    python plain_model.py --check model.safetensors embeddings.safetensors
"""
import argparse
import base64
import collections.abc
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

Encoded = collections.namedtuple("Encoded", "tokens class_token mask ids", defaults=(None, None, None))

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}


def read_safetensors(path):
    """Returns the tensors by name, and the file's metadata."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = torch.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]]) if end > begin else \
            torch.empty(0, dtype=DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors, metadata


def load(path, device="cpu"):
    """Loads a model file. If this module cannot build a part of the model, raises ValueError naming the part."""
    tensors, metadata = read_safetensors(path)
    if "tessera.model" not in metadata:
        raise ValueError(f"{path}: no model settings in it: this is not a model file of Tessera")
    tokenizer = json.loads(metadata.get("tessera.tokenizer", "{}"))
    vocabulary = base64.b64decode(metadata.get("tessera.vocabulary", ""))
    return Model(json.loads(metadata["tessera.model"]), tensors, tokenizer, vocabulary).to(device)


# ---- building blocks

class Weights(collections.abc.Mapping):
    """The tensors of a module by their names. They are looked up anew each time, because Module.to() and torch.export replace them."""

    def __init__(self, module, tensors):
        self.places = {}
        for name, tensor in tensors.items():
            *parents, leaf = name.split(".")
            inner = module
            for parent in parents:
                if parent not in inner._modules:
                    inner.add_module(parent, torch.nn.Module())
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
    """Rotates the channels of each head in pairs, by the angles whose cosines and sines [N, pairs] are given."""
    if rotation is None:
        return x
    cosine, sine, pairs = rotation
    cosine, sine = cosine[:, None].to(x.dtype), sine[:, None].to(x.dtype)
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


# ---- encoders, which map pixels or ids to Encoded

def leff(settings, activation, grid, class_token):
    """PyramidCLIP's feed-forward part: a depthwise convolution over the patches."""
    def forward(mlp, x):
        first = 1 if class_token else 0
        to_map = lambda t: t.unflatten(1, grid).permute(0, 3, 1, 2)
        to_tokens = lambda m: m.permute(0, 2, 3, 1).flatten(1, 2)
        norm = lambda name, m: mlp.batch_norm(name, m) if mlp.has(name + ".weight") else m
        m = activate(norm("bn_fc", to_map(mlp.linear("c_fc", x[:, first:]))), activation)
        m = activate(norm("bn_conv", mlp.conv("dwconv", m, padding=1, groups=m.shape[1])), activation)
        m = norm("bn_proj", to_map(mlp.linear("c_proj", to_tokens(m))))
        out = to_tokens(activate(m, activation) if settings.get("out_activation") else m)
        if not class_token:
            return out
        kept = x[:, :1] if settings.get("class_token", "identity") == "identity" else torch.zeros_like(x[:, :1])
        return torch.cat([kept, out], 1)
    return forward


def rotation_of(settings, grid, head_width, prefix, device):
    """Returns cosines and sines [prefix + patches, head_width / 2] of a grid's rotary positions, and which channels form a pair."""
    s = {"base": 10000.0, "coordinates": "index", "offset": 0.0, "order": "rows_first", "pairs": "neighbors"}
    s.update({key: value for key, value in settings.items() if value is not None})
    reference = s.get("reference")
    reference = [reference] * 2 if isinstance(reference, int) else reference
    centered = s["coordinates"] == "centered"

    def places(axis):
        place = torch.arange(grid[axis], device=device) + s["offset"]
        if centered:
            return (place + 0.5) / grid[axis] * 2 - 1
        return place / grid[axis] * reference[axis] if reference else place

    bands = head_width // 4
    speeds = (2 * math.pi if centered else 1.0) / s["base"] ** (torch.arange(bands, device=device) / bands)
    by_row = (places(0)[:, None] * speeds)[:, None].expand(-1, grid[1], -1)
    by_column = (places(1)[:, None] * speeds)[None].expand(grid[0], -1, -1)
    angles = torch.cat([by_row, by_column] if s["order"] == "rows_first" else [by_column, by_row], 2).flatten(0, 1)
    angles = F.pad(angles, (0, 0, prefix, 0))  # tokens before the patches are not rotated
    return angles.cos(), angles.sin(), s["pairs"]


def image_positions(part, prefix):
    """Returns the learned positions with zeros for the tokens before the patches that have none."""
    positions = part.weight("positional_embedding")
    which = part.setting("prefix_positions", "class_token")
    own = prefix if which == "all" else int(which == "class_token" and part.setting("class_token", True))
    return torch.cat([positions[:own], positions.new_zeros(prefix - own, positions.shape[1]), positions[own:]])


def vit(part, pixels, mask=None):
    s = part.setting
    activation, eps = s("activation", "gelu"), s("norm_eps", 1e-5)
    class_token = s("class_token", True)
    x = part.conv("conv1", pixels, stride=part.weight("conv1.weight").shape[2:])
    grid = x.shape[2:]
    x = x.flatten(2).transpose(1, 2)
    before = ([part.weight("class_embedding")[None]] if class_token else []) + \
        ([part.weight("register_embedding")] if part.has("register_embedding") else [])
    prefix = sum(len(tokens) for tokens in before)
    x = torch.cat([tokens.expand(x.shape[0], -1, -1) for tokens in before] + [x], 1)
    if part.has("positional_embedding"):
        x = x + image_positions(part, prefix)
    if s("pre_norm", True):
        x = part.norm("ln_pre", x, eps)
    rotary = part.settings.get("rotary")
    head_width = s("head_width", x.shape[2] // s("heads", 12))
    rotation = rotation_of(rotary, grid, head_width, prefix, x.device) if rotary else None
    convolved = s("leff", {})
    for i in range(s("layers", 12)):
        with_leff = convolved and i < convolved.get("layers", 9)
        x = block(part.inner(f"transformer.resblocks.{i}"), x, s("heads", 12), activation, eps,
                  feed_forward=leff(convolved, activation, grid, class_token) if with_leff else None,
                  rotation=rotation, norms=s("block_norm", "before"))
    if s("final_norm", "tokens") == "tokens":
        x = part.norm("ln_post", x, eps)
    return Encoded(x[:, prefix:], x[:, 0] if class_token else None)


def bottleneck(part, x, stride):
    y = F.relu(part.batch_norm("bn1", part.conv("conv1", x)))
    y = F.relu(part.batch_norm("bn2", part.conv("conv2", y, padding=1)))
    y = part.batch_norm("bn3", part.conv("conv3", F.avg_pool2d(y, stride) if stride > 1 else y))
    if part.has("downsample.0.weight"):
        down = part.inner("downsample")
        x = down.batch_norm("1", down.conv("0", F.avg_pool2d(x, stride) if stride > 1 else x))
    return F.relu(y + x)


def modified_resnet(part, pixels, mask=None):
    x = pixels
    for i in (1, 2, 3):
        x = F.relu(part.batch_norm(f"bn{i}", part.conv(f"conv{i}", x, stride=2 if i == 1 else 1, padding=1)))
    x = F.avg_pool2d(x, 2)
    for stage, count in enumerate(part.setting("layers", [3, 4, 6, 3])):
        for i in range(count):
            x = bottleneck(part.inner(f"layer{stage + 1}.{i}"), x, 2 if stage > 0 and i == 0 else 1)
    return Encoded(x.flatten(2).transpose(1, 2))


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
        x = block(part.inner(f"transformer.resblocks.{i}"), x, s("heads", 12), s("activation", "gelu"), s("norm_eps", 1e-5),
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


def text_group_encoder(part, ids, mask=None):
    s = part.setting
    tokens = embed_tokens(part, ids, mask)
    group_tokens = part.weight("group_tokens").expand(ids.shape[0], -1, -1)
    x = torch.cat([tokens, group_tokens], 1)
    keys = None if mask is None else torch.cat([mask, mask.new_ones(group_tokens.shape[:2])], 1)

    def through(name, count, y, key_mask):
        for i in range(count):
            y = block(part.inner(f"{name}.{i}"), y, s("heads", 4), s("activation", "gelu"), key_mask=key_mask)
        return y

    x = through("token_blocks", s("token_layers", 6), x, keys)
    groups = grouping(part.inner("grouping"), x[:, :ids.shape[1]], x[:, ids.shape[1]:], mask, s("heads", 4),
                      s("variant", "plain"), s("hard", True), s("assign_eps", None))
    return Encoded(part.norm("ln_final", through("group_blocks", s("group_layers", 3), groups, None)))


def groupvit(part, pixels, mask=None):
    s = part.setting
    x = part.conv("patch_embed.proj", pixels, stride=s("patch_size", 16)).flatten(2).mT
    x = part.norm("patch_embed.norm", x) + part.weight("pos_embed")
    groups = None
    depths, heads = s("depths", [6, 3, 3]), s("heads", [6, 6, 6])
    for i, depth in enumerate(depths):
        stage, count = part.inner(f"layers.{i}"), x.shape[1]
        if stage.has("group_token"):
            own = stage.weight("group_token").expand(x.shape[0], -1, -1)
            if stage.has("group_projector.0.weight"):
                project = stage.inner("group_projector")
                own = own + fc_mlp(project.inner("1"), project.norm("0", groups).mT).mT
            x = torch.cat([x, own], 1)
        for j in range(depth):
            b = stage.inner(f"blocks.{j}")
            q, k, v = b.inner("attn").linear("qkv", b.norm("norm1", x)).chunk(3, -1)
            x = x + b.inner("attn").linear("proj", attend(q, k, v, heads[i]))
            x = x + fc_mlp(b.inner("mlp"), b.norm("norm2", x))
        if not stage.has("group_token"):
            break
        x, groups = x[:, :count], x[:, count:]
        x = grouping(stage.inner("downsample"), x, groups, None, heads[i], "groupvit", True, s("assign_eps", 1.0))
    return Encoded(part.norm("norm", x))


# ---- read-outs, which map Encoded to [B, D]

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


ENCODERS = {"vit": vit, "modified_resnet": modified_resnet, "text_transformer": text_transformer,
            "text_group_encoder": text_group_encoder, "groupvit": groupvit}
READOUTS = {"cls": pooled("cls"), "eos": pooled("eos"), "gap": pooled("gap"), "max": pooled("max"),
            "attention_pool_2d": attention_pool_2d, "attentional_pool": attentional_pool, "sparo": sparo, "cls_mean": cls_mean,
            "map": map_pool, "linear_bottleneck": linear_bottleneck, "fdt": fdt, "groups": groups, "token_projection": token_projection}
PROJECTIONS = {"none": lambda part, x: x, "linear": linear_projection, "adaptor": adaptor,
               "mlp": lambda part, x: mlp_head(part.inner("head"), x)}


def group_slots(part, encoded):
    """Returns the projected groups [B, K, E]."""
    return mlp_head(part.inner("readout.head"), encoded.tokens)


SLOTS = {"sparo": sparo_slots, "groups": group_slots}


def name_of(choice):
    return choice if isinstance(choice, str) else (choice or {}).get("name", "none")


class Tower:
    def __init__(self, weights, prefix, settings, where):
        def part(kind, known):
            choice = settings.get(kind) or "none"
            choice = {"name": choice} if isinstance(choice, str) else dict(choice)
            name = choice.pop("name")
            if name not in known:
                raise ValueError(f"{where}.{kind}: plain PyTorch has {', '.join(known)}, not {name}")
            return known[name], Part(weights, prefix, choice)
        self.names = {kind: name_of(settings.get(kind)) for kind in ("encoder", "readout", "projection")}
        self.encode, self.encoder = part("encoder", ENCODERS)
        if self.encoder.setting("stem", "patch") != "patch":
            raise ValueError(f"{where}.encoder.stem: plain PyTorch has patch, not {self.encoder.settings['stem']}")
        self.read, self.readout = part("readout", READOUTS)
        self.project, self.projection = part("projection", PROJECTIONS)

    def __call__(self, inputs, mask=None):
        return self.outputs(inputs, mask)["embeddings"]

    def outputs(self, inputs, mask=None, names=()):
        """Returns `embeddings` [B, D] and those of these outputs that `names` has: `tokens` [B, N, W], the patches or tokens as losses on
        tokens compare them; `dense` [B, N, D], each patch or token projected like the embedding; and `slots` [B, L, E]. Nothing is
        normalized, and padding is 0."""
        encoded = self.encode(self.encoder, inputs, mask)
        x = self.read(self.readout, encoded)
        if self.encoder.setting("final_norm", "tokens") == "pooled":
            x = self.encoder.norm("ln_post" if self.encoder.has("ln_post.weight") else "ln_final", x,
                                  self.encoder.setting("norm_eps", 1e-5))
        out = {"embeddings": self.project(self.projection, x)}
        if "tokens" in names:
            out["tokens"] = zero_padding(project_tokens(self.names["projection"], self.projection, encoded.tokens), encoded.mask)
        if "dense" in names:
            out["dense"] = zero_padding(self.project(self.projection, encoded.tokens), encoded.mask)
        if "slots" in names:
            out["slots"] = SLOTS[self.names["readout"]](self.readout, encoded)
        return out


class Model(torch.nn.Module):
    """Both towers in evaluation mode. `text` is None if the model has only an image tower."""

    def __init__(self, settings, tensors, tokenizer, vocabulary):
        super().__init__()
        weights = Weights(self, {name: tensor for name, tensor in tensors.items() if not name.startswith("published.")})
        self.settings, self.weights, self.tokenizer, self.vocabulary = settings, weights, tokenizer, vocabulary
        if settings.get("preprocessing", {}).get("resize_mode") == "naflex":
            raise ValueError("model.preprocessing.resize_mode: this module brings all images to one size, which naflex does not do")
        self.image = Tower(weights, "visual.", settings["image"], "model.image")
        self.text = Tower(weights, "", settings["text"], "model.text") if settings.get("text") else None
        if self.text and self.image.readout.settings.get("special_token_ids") is None:  # STAIR's image read-out then has the ids of texts
            self.image.readout.settings["special_token_ids"] = self.text.readout.settings.get("special_token_ids")

    def forward(self, pixels=None, ids=None, mask=None):
        """Returns the embeddings of images, of texts, or of both as a pair, as encode_image() and encode_text() do."""
        out = [] if pixels is None else [self.encode_image(pixels)]
        if ids is not None:
            out.append(self.encode_text(ids, mask))
        return out[0] if len(out) == 1 else tuple(out)

    def encode_image(self, pixels):
        """Maps pixels [B, 3, H, W], normalized as by preprocess(), to embeddings [B, D], which are not normalized, unless the model's
        setting unit_length says so."""
        return self.image_outputs(pixels)["embeddings"]

    def encode_text(self, ids, mask=None):
        """Maps ids [B, L] int64 and mask [B, L] bool, with real tokens first, to embeddings [B, D], as encode_image() does."""
        return self.text_outputs(ids, mask)["embeddings"]

    def image_outputs(self, pixels, names=()):
        """Returns encode_image(pixels) as `embeddings`, and the outputs of Tower.outputs() that `names` has."""
        return self.scaled(self.image.outputs(pixels, None, names))

    def text_outputs(self, ids, mask=None, names=()):
        """Returns encode_text(ids, mask) as `embeddings`, and the outputs of Tower.outputs() that `names` has."""
        if self.text is None:
            raise ValueError("this model has no text tower")
        return self.scaled(self.text.outputs(ids, mask, names))

    def scaled(self, outputs):
        if self.settings.get("unit_length"):
            outputs["embeddings"] = F.normalize(outputs["embeddings"], dim=-1)
        return outputs

    def preprocess(self, picture):
        """Turns a path or a PIL image into pixels [3, H, W]. Pillow's resampling equals Tessera's; JPEG decoders may differ by one or two
        levels of 255."""
        from PIL import Image
        s = {"image_size": 224, "resize_mode": "shortest", "interpolation": "bicubic", "fill_color": 0,
             "exif_rotation": False, "gray_range": 65535, "crop_pct": 1.0, "crop_rounding": "half_even", "mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}
        s.update(self.settings.get("preprocessing", {}))
        height, width = [s["image_size"]] * 2 if isinstance(s["image_size"], int) else s["image_size"]
        image = picture if isinstance(picture, Image.Image) else Image.open(picture)
        image = fitted(rgb_of(image, s), height, width, s)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(height, width, 3).permute(2, 0, 1) / 255
        return (pixels - torch.tensor(s["mean"]).view(3, 1, 1)) / torch.tensor(s["std"]).view(3, 1, 1)


def rgb_of(image, settings):
    from PIL import ImageOps
    if settings["exif_rotation"]:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # 16-bit gray levels, which convert("RGB") would clip at 255
        scale = 256 / (settings["gray_range"] + 1)
        image = image.convert("I").point(lambda value: value * scale).convert("L")
    return image.convert("RGB")


def fitted(image, height, width, settings):
    from PIL import Image
    if (image.height, image.width) == (height, width):
        return image
    how = Image.BICUBIC if settings["interpolation"] == "bicubic" else Image.BILINEAR
    rows, columns = [math.floor(side / settings["crop_pct"]) for side in (height, width)]
    if settings["resize_mode"] == "squash":
        sizes = (columns, rows)
    elif settings["resize_mode"] == "shortest" and rows == columns:  # as in torchvision, the longer side is rounded down
        short = min(image.width, image.height)
        sizes = (rows * image.width // short, rows * image.height // short)
    else:
        pick = max if settings["resize_mode"] == "longest" else min
        ratio = pick(image.height / rows, image.width / columns)
        sizes = (max(1, round(image.width / ratio)), max(1, round(image.height / ratio)))
        how = Image.BICUBIC if settings["resize_mode"] == "shortest" else how
    middle = (lambda missing: missing // 2) if settings["crop_rounding"] == "down" else (lambda missing: round(missing / 2))
    offset = lambda side, target: -middle(side - target) if side >= target else (target - side) // 2
    out = Image.new("RGB", (width, height), (settings["fill_color"],) * 3)
    out.paste(image.resize(sizes, how), (offset(sizes[0], width), offset(sizes[1], height)))
    return out


# ---- self-check

@torch.no_grad()
def differences(model, tensors, metadata):
    """Returns the largest difference from the embeddings in a file, for each kind. The inputs are the images that tessera-embed read, or
    the file's own `pixels`, `ids` and `mask`."""
    out = {}
    def compare(name, ours):
        theirs = tensors[name].float()
        if metadata.get("normalized") == "true":
            ours = F.normalize(ours, dim=-1)
        out[name] = (ours - theirs).abs().max().item()
    if "image_embeddings" in tensors:
        pixels = tensors.get("pixels")
        if pixels is None:
            pixels = torch.stack([model.preprocess(path) for path in json.loads(metadata["images"])])
        compare("image_embeddings", model.encode_image(pixels))
    if "text_embeddings" in tensors and "ids" in tensors:
        compare("text_embeddings", model.encode_text(tensors["ids"], tensors.get("mask")))
    return out


def main():
    parser = argparse.ArgumentParser(description="Compares this file's embeddings with Tessera's.")
    parser.add_argument("--check", nargs="+", required=True, metavar="FILE", help="MODEL EMBEDDINGS [MODEL EMBEDDINGS ...]")
    parser.add_argument("--tolerance", type=float, default=1e-2,
                        help="largest accepted difference (use 1e-5 if the pixels are in the file)")
    arguments = parser.parse_args()
    far = False
    for path, embeddings in zip(arguments.check[::2], arguments.check[1::2]):
        for name, difference in differences(load(path), *read_safetensors(embeddings)).items():
            print(f"{path}: {name} differ by {difference:.2g} at most")
            far |= not difference <= arguments.tolerance
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
