#!/usr/bin/env python3
"""Compares FLAIR's text-conditioned loss of a batch, forward and backward on the CPU: torch.ops.tessera.text_conditioned_loss, which holds
a tile of one image's pairs, and PyTorch's composed operations. Each image is paired with its own K captions and one caption of every other
image.

  scripts/compare/text_conditioned_loss.py                    # B=256, K=8, P=196, D=512, 8 heads; the composed side takes several GB
  scripts/compare/text_conditioned_loss.py --repetitions 5 --time-at-most 0.5 --memory-at-most 0.05
  scripts/compare/text_conditioned_loss.py --composed 1       # queries normalized and projected once per caption, not once per pair

By default, the composed side does what FLAIR's released code does: it gathers the texts of all pairs, and
torch.nn.functional.multi_head_attention_forward with add_zero_attn pools each image for them. --composed 1 normalizes and projects queries
before the gathering; --composed 2 also writes out the attention, so that the weights [B, heads, C, P] are held.
"""
import math

import side_by_side

NAMES = ["ln_q.weight", "ln_q.bias", "ln_k.weight", "ln_k.bias", "ln_v.weight", "ln_v.bias", "in_proj_weight", "in_proj_bias",
         "out_proj.weight", "out_proj.bias"]


def parameters_of(torch, width):
    norms = [torch.ones(width) if i % 2 == 0 else torch.zeros(width) for i in range(6)]
    return norms + [torch.randn(3 * width, width) / width**0.5, torch.zeros(3 * width), torch.randn(width, width) / width**0.5,
                    torch.zeros(width)]


def pairs_of(torch, images, captions):
    drawn = torch.randint(captions, (images, images))
    others = [torch.cat([torch.arange(i * captions, (i + 1) * captions),
                         torch.tensor([j * captions + int(drawn[i, j]) for j in range(images) if j != i], dtype=torch.long)])
              for i in range(images)]
    labels = torch.full((images, captions + images - 1), -1, dtype=torch.int8)
    labels[:, :captions] = 1
    return torch.stack(others), labels


def released(torch, args, tokens, texts, parameters, pair_texts):
    functional, p = torch.nn.functional, dict(zip(NAMES, parameters))
    norm = lambda x, name: functional.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"])
    gathered = texts[pair_texts]  # [B, C, D]
    query, key, value = (norm(x, name).transpose(0, 1) for x, name in ((gathered, "ln_q"), (tokens, "ln_k"), (tokens, "ln_v")))
    pooled, _ = functional.multi_head_attention_forward(
        query, key, value, args.width, args.heads, p["in_proj_weight"], p["in_proj_bias"], None, None, True, 0.0, p["out_proj.weight"],
        p["out_proj.bias"], need_weights=False)
    return pooled.transpose(0, 1), gathered


def queries_once(torch, args, tokens, texts, parameters, pair_texts):
    functional, p = torch.nn.functional, dict(zip(NAMES, parameters))
    norm = lambda x, name: functional.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"])
    weights, biases = p["in_proj_weight"].chunk(3), p["in_proj_bias"].chunk(3)
    project = lambda x, name, part: functional.linear(norm(x, name), weights[part], biases[part])
    heads = lambda x: x.unflatten(-1, (args.heads, -1)).transpose(1, 2)
    query = heads(project(texts, "ln_q", 0)[pair_texts])
    key, value = (heads(functional.pad(project(tokens, name, part), (0, 0, 0, 1))) for name, part in (("ln_k", 1), ("ln_v", 2)))
    if args.composed == 2:
        attended = ((query @ key.mT) / math.sqrt(query.shape[-1])).softmax(-1) @ value
    else:
        attended = functional.scaled_dot_product_attention(query, key, value)
    pooled = functional.linear(attended.transpose(1, 2).flatten(2), p["out_proj.weight"], p["out_proj.bias"])
    return pooled, texts[pair_texts]


def make(torch, args):
    tokens = torch.randn(args.images, args.patches, args.width).requires_grad_()
    texts = torch.randn(args.images * args.captions, args.width).requires_grad_()
    scale, bias = torch.tensor(14.3, requires_grad=True), torch.tensor(-10.0, requires_grad=True)
    parameters = [each.requires_grad_() for each in parameters_of(torch, args.width)]
    pair_texts, labels = pairs_of(torch, args.images, args.captions)
    functional, fused = torch.nn.functional, torch.ops.tessera.text_conditioned_loss
    pool = queries_once if args.composed else released
    share = 1.0 / labels.numel()

    def eager(tokens, texts, scale, bias, *parameters):
        pooled, gathered = pool(torch, args, tokens, texts, parameters, pair_texts)
        logits = scale * functional.cosine_similarity(pooled, gathered, dim=-1) + bias
        return (-functional.logsigmoid(labels * logits).sum() * share,)

    def ours(tokens, texts, scale, bias, *parameters):
        return (fused(tokens, texts, scale, bias, list(parameters), pair_texts, labels, args.heads, True) * share,)

    return (tokens, texts, scale, bias, *parameters), [torch.ones(())], {"eager": eager, "fused": ours}


if __name__ == "__main__":
    side_by_side.compare_operator(
        __doc__, {"images": 256, "captions": 8, "patches": 196, "width": 512, "heads": 8, "composed": 0},
        "text_conditioned_loss forward + backward, B={images} K={captions} P={patches} D={width} heads={heads}, composed {composed}", make)
