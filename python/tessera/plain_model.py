"""Loads a model trained by Tessera in plain PyTorch: it builds towers and read-outs from one model file and needs no other package.

    import torch, tessera
    model = tessera.plain_model.load("model.safetensors")        # a model file, or a checkpoint's model.safetensors
    images = model.encode_image(torch.stack([model.preprocess("cat.jpg")]))    # [B, D], Pillow reads the image
    texts = model.encode_text(ids, mask)                   # arguments: ids int64 [B, L]; mask bool [B, L], True for real tokens
    similarity = torch.nn.functional.cosine_similarity(images, texts)

Embeddings equal Tessera's to 1e-5 in float32. The model is a torch.nn.Module, whose parameters have the file's names (OpenCLIP's names,
where OpenCLIP has such a part); to fine-tune, run `model.requires_grad_()`.

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

    def linear(self, name, x):
        return F.linear(x, self.weight(name + ".weight"), self.weights.get(f"{self.prefix}{name}.bias"))

    def norm(self, name, x, eps=1e-5):
        weight = self.weight(name + ".weight")
        return F.layer_norm(x, weight.shape, weight, self.weight(name + ".bias"), eps)

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
    if key_mask is not None:
        real = key_mask[:, None, None, :]
        has_key = real.any(-1, keepdim=True)
        allowed = real | ~has_key
    out = F.scaled_dot_product_attention(split(q), split(k), split(v), attn_mask=allowed, is_causal=causal)
    if has_key is not None:
        out = torch.where(has_key, out, torch.zeros((), dtype=out.dtype, device=out.device))
    return out.transpose(1, 2).flatten(2)


def multi_head_attention(part, query, keys, heads, key_mask=None, out="out_proj"):
    """Takes the weights from one matrix (in_proj_weight), three matrices (q_proj_weight, ...) or three linear layers (q_proj, ...)."""
    if part.has("q_proj.weight"):
        weights = [part.weight(f"{x}_proj.weight") for x in "qkv"]
        biases = [part.weight(f"{x}_proj.bias") for x in "qkv"]
    else:
        whole = part.has("in_proj_weight")
        weights = part.weight("in_proj_weight").chunk(3) if whole else [part.weight(f"{x}_proj_weight") for x in "qkv"]
        biases = part.weight("in_proj_bias").chunk(3)
    q = F.linear(query, weights[0], biases[0]).expand(keys.shape[0], -1, -1)
    k, v = (F.linear(keys, weights[i], biases[i]) for i in (1, 2))
    return part.linear(out, attend(q, k, v, heads, key_mask))


def block(part, x, heads, activation, eps=1e-5, key_mask=None, causal=False, feed_forward=None):
    """A pre-norm transformer block under OpenCLIP's names."""
    scale = lambda name, y: y * part.weight(name + ".gamma") if part.has(name + ".gamma") else y
    attention = part.inner("attn")
    y = F.linear(part.norm("ln_1", x, eps), attention.weight("in_proj_weight"), attention.weight("in_proj_bias"))
    y = attention.linear("out_proj", attend(*y.chunk(3, -1), heads, key_mask, causal))
    x = x + scale("ls_1", y)
    mlp = part.inner("mlp")
    y = part.norm("ln_2", x, eps)
    y = feed_forward(mlp, y) if feed_forward else mlp.linear("c_proj", activate(mlp.linear("c_fc", y), activation))
    return x + scale("ls_2", y)


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


def vit(part, pixels, mask=None):
    s = part.setting
    activation, eps = s("activation", "gelu"), s("norm_eps", 1e-5)
    class_token = s("class_token", True)
    x = part.conv("conv1", pixels, stride=part.weight("conv1.weight").shape[2:])
    grid = x.shape[2:]
    x = x.flatten(2).transpose(1, 2)
    if class_token:
        x = torch.cat([part.weight("class_embedding").expand(x.shape[0], 1, -1), x], 1)
    if part.has("positional_embedding"):
        x = x + part.weight("positional_embedding")
    if s("pre_norm", True):
        x = part.norm("ln_pre", x, eps)
    convolved = s("leff", {})
    for i in range(s("layers", 12)):
        with_leff = convolved and i < convolved.get("layers", 9)
        x = block(part.inner(f"transformer.resblocks.{i}"), x, s("heads", 12), activation, eps,
                  feed_forward=leff(convolved, activation, grid, class_token) if with_leff else None)
    if s("final_norm", "tokens") == "tokens":
        x = part.norm("ln_post", x, eps)
    return Encoded(x[:, 1:], x[:, 0]) if class_token else Encoded(x)


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


def embed_tokens(part, ids, mask):
    safe = ids if mask is None else ids.masked_fill(~mask, 0)
    x = F.embedding(safe, part.weight("token_embedding.weight")) + part.weight("positional_embedding")[:ids.shape[1]]
    return zero_padding(x, mask)


def text_transformer(part, ids, mask=None):
    s = part.setting
    causal = s("attention", "causal") == "causal"
    x = embed_tokens(part, ids, mask)
    for i in range(s("layers", 12)):  # no mask is needed, because padding is on the right, where causal attention does not look
        x = block(part.inner(f"transformer.resblocks.{i}"), x, s("heads", 12), s("activation", "gelu"), s("norm_eps", 1e-5),
                  None if causal else mask, causal)
    if s("final_norm", "tokens") == "tokens":
        x = part.norm("ln_final", x, s("norm_eps", 1e-5))
    return Encoded(zero_padding(x, mask), None, mask, ids)


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


def sparo(part, encoded):
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
    x = together(s("projection", "slot") == "full", lambda y: part.linear("proj", y), x)
    return F.normalize(x, dim=-1).flatten(1) / math.sqrt(slots) if s("normalize_slots", True) else x.flatten(1)


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


ENCODERS = {"vit": vit, "modified_resnet": modified_resnet, "text_transformer": text_transformer,
            "text_group_encoder": text_group_encoder, "groupvit": groupvit}
READOUTS = {"cls": pooled("cls"), "eos": pooled("eos"), "gap": pooled("gap"), "max": pooled("max"),
            "attention_pool_2d": attention_pool_2d, "attentional_pool": attentional_pool, "sparo": sparo,
            "linear_bottleneck": linear_bottleneck, "fdt": fdt, "groups": groups, "token_projection": token_projection}
PROJECTIONS = {"none": lambda part, x: x, "linear": linear_projection, "adaptor": adaptor,
               "mlp": lambda part, x: mlp_head(part.inner("head"), x)}


# Settings of published towers, each with the only value that this module supports.
PLAIN = {"registers": 0, "rotary": None, "stem": "patch", "mlp": "plain", "mlp_norm": False, "qkv_bias": "all", "out_bias": True, "mlp_bias": True,
         "qk_norm": False, "attention_norm": False, "mlp_input_norm": False, "block_norm": "before"}
PLAIN_TEXT = {"class_token": "none", "position_embedding": "learned", "position_offset": 0, "token_types": 0, "embedding_scale": 1.0,
              "pre_norm": False}


def check_plain(name, settings, where):
    asked = PLAIN | PLAIN_TEXT if name == "text_transformer" else PLAIN
    if settings.get("class_token", True) and name == "vit":
        asked = dict(asked, prefix_positions="class_token")
    for key, plain in asked.items():
        if settings.get(key, plain) != plain:
            raise ValueError(f"{where}.encoder.{key}: this file builds {plain}, not {settings[key]}")


class Tower:
    def __init__(self, weights, prefix, settings, where):
        def part(kind, known):
            choice = settings.get(kind) or "none"
            choice = {"name": choice} if isinstance(choice, str) else dict(choice)
            name = choice.pop("name")
            if name not in known:
                raise ValueError(f"{where}.{kind}: this file builds {', '.join(known)}, not {name}")
            return known[name], Part(weights, prefix, choice)
        self.encode, self.encoder = part("encoder", ENCODERS)
        name = settings["encoder"] if isinstance(settings["encoder"], str) else settings["encoder"]["name"]
        check_plain(name, self.encoder.settings, where)
        self.read, self.readout = part("readout", READOUTS)
        self.project, self.projection = part("projection", PROJECTIONS)

    def __call__(self, inputs, mask=None):
        x = self.read(self.readout, self.encode(self.encoder, inputs, mask))
        if self.encoder.setting("final_norm", "tokens") == "pooled":
            x = self.encoder.norm("ln_post" if self.encoder.has("ln_post.weight") else "ln_final", x,
                                  self.encoder.setting("norm_eps", 1e-5))
        return self.project(self.projection, x)


class Model(torch.nn.Module):
    """Both towers in evaluation mode. `text` is None if the model has only an image tower."""

    def __init__(self, settings, tensors, tokenizer, vocabulary):
        super().__init__()
        weights = Weights(self, {name: tensor for name, tensor in tensors.items() if not name.startswith("published.")})
        self.settings, self.weights, self.tokenizer, self.vocabulary = settings, weights, tokenizer, vocabulary
        if settings.get("unit_length"):
            raise ValueError("model.unit_length: this module does not normalize embeddings")
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
        """Maps pixels [B, 3, H, W], normalized as by preprocess(), to embeddings [B, D], which are not normalized."""
        return self.image(pixels)

    def encode_text(self, ids, mask=None):
        """Maps ids [B, L] int64 and mask [B, L] bool, with real tokens first, to embeddings [B, D], which are not normalized."""
        if self.text is None:
            raise ValueError("this model has no text tower")
        return self.text(ids, mask)

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
