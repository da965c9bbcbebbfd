#!/usr/bin/env python3
"""Compares the time and memory of a fused operator, forward and backward on the CPU, with eager PyTorch's composed operations.

  scripts/compare/operators.py sparsify_group                     # B=64, L=55, P=196, D=512
  scripts/compare/operators.py max_similarity --time-at-most 0.5 --memory-at-most 0.05
  scripts/compare/operators.py token_max_projection               # B=64, P=196, V=30522, D=512; eager PyTorch needs 3 GB
  scripts/compare/operators.py linear_cross_entropy               # T=4096, V=49408, D=512; eager PyTorch needs about 3 GB
  scripts/compare/operators.py linear_soft_cross_entropy          # classifies images into words, as SuperCLIP does
  scripts/compare/operators.py flops_regularizer
  scripts/compare/operators.py text_conditioned_loss              # B=256, K=8, P=196, D=512, 8 heads; eager PyTorch needs several GB
  scripts/compare/operators.py OPERATOR --help                    # describes the comparison and lists the options with the default sizes

All tokens are real and no target is ignored, because the fused operator skips padding and ignored targets. Times are medians over
repetitions in which the two sides take turns in one process. Memory is measured in a fresh process for each side, which runs everything
once and then measures how far the resident set grows during a second run. The results and the gradients of the inputs, which both sides
must hold, are subtracted; the rest is the operator's own memory.
"""
import argparse
import math
import pathlib
import statistics
import sys

import side_by_side


def sparsify_group(torch, args):
    """SPARC's sparsify-and-group."""
    text = torch.randn(args.batch, args.tokens, args.width, requires_grad=True)
    image = torch.randn(args.batch, args.patches, args.width, requires_grad=True)
    mask = torch.ones(args.batch, args.tokens, dtype=torch.bool)
    gradient = torch.randn(args.batch, args.tokens, args.width)

    def composed(text, image):
        similarity = text @ image.mT  # [B, L, P]
        low, high = similarity.amin(-1, keepdim=True), similarity.amax(-1, keepdim=True)
        z = (similarity - low) / (high - low)
        kept = torch.where(z < 1 / image.shape[1], 0.0, z)
        weights = kept / kept.sum(-1, keepdim=True)
        return (weights.masked_fill(~mask.unsqueeze(-1), 0.0) @ image,)

    return (text, image), [gradient], {"eager": composed, "fused": lambda text, image: (torch.ops.tessera.sparsify_group(text, image, mask),)}


def max_similarity(torch, args):
    """FILIP's similarities of all images with all texts. The fused operator never holds [B, B, P, L], and the composed operations do."""
    unit = torch.nn.functional.normalize
    patches = unit(torch.randn(args.batch, args.patches, args.width), dim=-1).requires_grad_()
    tokens = unit(torch.randn(args.batch, args.tokens, args.width), dim=-1).requires_grad_()
    mask = torch.ones(args.batch, args.tokens, dtype=torch.bool)
    keep = torch.ones(args.batch, args.patches, dtype=torch.bool)
    gradients = [torch.randn(args.batch, args.batch) for _ in range(2)]

    def composed(patches, tokens):
        similarity = torch.einsum("ipd,jld->ijpl", patches, tokens)  # [B, B, P, L]
        i2t = similarity.masked_fill(~mask[None, :, None, :], -1e9).max(3).values.mean(2)
        t2i = similarity.max(2).values.masked_fill(~mask, 0.0).sum(2) / mask.sum(1)
        return i2t, t2i

    return (patches, tokens), gradients, {
        "eager": composed, "fused": lambda patches, tokens: torch.ops.tessera.max_similarity(patches, tokens, keep, mask)}


def token_max_projection(torch, args):
    """STAIR's token projection. The fused operator never holds [B, P, V], and the composed operations do. About half of the maxima are
    above 0, as at the start of training; the others get no gradient and cost the fused operator's backward pass nothing."""
    def rounded(x, step):  # rounded inputs make sums of products exact, so that both sides find the same maxima
        return ((x / step).round() * step).requires_grad_()

    tokens = rounded(torch.randn(args.batch, args.positions, args.width), 1 / 4)  # has the distribution of a LayerNorm's output
    table = rounded(0.02 * torch.randn(args.vocabulary, args.width), 1 / 512)
    greatest = torch.linalg.vector_norm(table.detach(), dim=1).mean() * 2.7  # 2.7: typical maximum of 196 standard normal values
    bias = rounded(-greatest + 0.1 * torch.randn(args.vocabulary), 1 / 512)
    mask = torch.ones(args.batch, args.positions, dtype=torch.bool)
    gradient = torch.randn(args.batch, args.vocabulary) / args.vocabulary**0.5

    def composed(tokens, table, bias):
        activations = torch.nn.functional.linear(tokens, table, bias)  # [B, P, V]
        return (torch.log1p(torch.relu(activations.masked_fill(~mask.unsqueeze(-1), float("-inf")).max(1).values)),)

    fused = torch.ops.tessera.token_max_projection
    return (tokens, table, bias), [gradient], {
        "eager": composed, "fused": lambda tokens, table, bias: (fused(tokens, mask, table, bias)[0],)}


def hidden_and_weight(torch, args):
    hidden = torch.randn(args.tokens, args.width).requires_grad_()  # has the distribution of a LayerNorm's output
    weight = (0.02 * torch.randn(args.vocabulary, args.width)).requires_grad_()
    return hidden, weight


def linear_cross_entropy(torch, args):
    """The cross-entropy of a linear layer over a vocabulary. The fused operator never holds [T, V], and eager PyTorch's linear and
    cross_entropy do."""
    inputs = hidden_and_weight(torch, args)
    targets = torch.randint(args.vocabulary, (args.tokens,))
    functional, fused = torch.nn.functional, torch.ops.tessera.linear_cross_entropy
    return inputs, [torch.ones(())], {
        "eager": lambda hidden, weight: (functional.cross_entropy(functional.linear(hidden, weight), targets),),
        "fused": lambda hidden, weight: (fused(hidden, weight, targets),)}


def linear_soft_cross_entropy(torch, args):
    """The cross-entropy with a soft target of several words per row. Eager PyTorch multiplies a dense target by log_softmax."""
    inputs = hidden_and_weight(torch, args)
    ids = torch.rand(args.tokens, args.vocabulary // 8).topk(args.words, 1).indices  # distinct words
    shares = torch.rand(args.tokens, args.words).softmax(1)
    functional, fused = torch.nn.functional, torch.ops.tessera.linear_soft_cross_entropy

    def composed(hidden, weight):
        target = shares.new_zeros(args.tokens, args.vocabulary).scatter_(1, ids, shares)
        return (-(target * functional.linear(hidden, weight).log_softmax(1)).sum() / args.tokens,)

    return inputs, [torch.ones(())], {"eager": composed, "fused": lambda hidden, weight: (fused(hidden, weight, ids, shares),)}


def flops_regularizer(torch, args):
    """STAIR's FLOPs regularizer."""
    encoding = torch.relu(torch.randn(args.rows, args.vocabulary)).requires_grad_()
    return (encoding,), [torch.ones(())], {"eager": lambda encoding: (encoding.mean(0).square().sum(),),
                                           "fused": lambda encoding: (torch.ops.tessera.flops_regularizer(encoding),)}


# The parameters of FLAIR's pool, in the operator's order.
POOL = ["ln_q.weight", "ln_q.bias", "ln_k.weight", "ln_k.bias", "ln_v.weight", "ln_v.bias", "in_proj_weight", "in_proj_bias",
        "out_proj.weight", "out_proj.bias"]


def pool_parameters(torch, width):
    norms = [torch.ones(width) if i % 2 == 0 else torch.zeros(width) for i in range(6)]
    return norms + [torch.randn(3 * width, width) / width**0.5, torch.zeros(3 * width), torch.randn(width, width) / width**0.5,
                    torch.zeros(width)]


def text_pairs(torch, images, captions):
    """Pairs each image with its own captions and one caption of every other image."""
    drawn = torch.randint(captions, (images, images))
    others = [torch.cat([torch.arange(i * captions, (i + 1) * captions),
                         torch.tensor([j * captions + int(drawn[i, j]) for j in range(images) if j != i], dtype=torch.long)])
              for i in range(images)]
    labels = torch.full((images, captions + images - 1), -1, dtype=torch.int8)
    labels[:, :captions] = 1
    return torch.stack(others), labels


def released(torch, args, tokens, texts, parameters, pair_texts):
    functional, p = torch.nn.functional, dict(zip(POOL, parameters))
    norm = lambda x, name: functional.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"])  # noqa: E731
    gathered = texts[pair_texts]  # [B, C, D]
    query, key, value = (norm(x, name).transpose(0, 1) for x, name in ((gathered, "ln_q"), (tokens, "ln_k"), (tokens, "ln_v")))
    pooled, _ = functional.multi_head_attention_forward(
        query, key, value, args.width, args.heads, p["in_proj_weight"], p["in_proj_bias"], None, None, True, 0.0, p["out_proj.weight"],
        p["out_proj.bias"], need_weights=False)
    return pooled.transpose(0, 1), gathered


def queries_once(torch, args, tokens, texts, parameters, pair_texts):
    functional, p = torch.nn.functional, dict(zip(POOL, parameters))
    norm = lambda x, name: functional.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"])  # noqa: E731
    weights, biases = p["in_proj_weight"].chunk(3), p["in_proj_bias"].chunk(3)
    project = lambda x, name, part: functional.linear(norm(x, name), weights[part], biases[part])  # noqa: E731
    heads = lambda x: x.unflatten(-1, (args.heads, -1)).transpose(1, 2)  # noqa: E731
    query = heads(project(texts, "ln_q", 0)[pair_texts])
    key, value = (heads(functional.pad(project(tokens, name, part), (0, 0, 0, 1))) for name, part in (("ln_k", 1), ("ln_v", 2)))
    if args.composed == 2:
        attended = ((query @ key.mT) / math.sqrt(query.shape[-1])).softmax(-1) @ value
    else:
        attended = functional.scaled_dot_product_attention(query, key, value)
    pooled = functional.linear(attended.transpose(1, 2).flatten(2), p["out_proj.weight"], p["out_proj.bias"])
    return pooled, texts[pair_texts]


def text_conditioned_loss(torch, args):
    """FLAIR's text-conditioned loss of a batch. The fused operator holds a tile of one image's pairs. By default, eager PyTorch does
    what FLAIR's released code does: it gathers the texts of all pairs, and torch.nn.functional.multi_head_attention_forward with
    add_zero_attn pools each image for them. --composed 1 normalizes and projects each caption's query once, before the gathering, and not
    once per pair; --composed 2 also writes out the attention, so that it holds the weights [B, heads, C, P]."""
    tokens = torch.randn(args.images, args.patches, args.width).requires_grad_()
    texts = torch.randn(args.images * args.captions, args.width).requires_grad_()
    scale, bias = torch.tensor(14.3, requires_grad=True), torch.tensor(-10.0, requires_grad=True)
    parameters = [each.requires_grad_() for each in pool_parameters(torch, args.width)]
    pair_texts, labels = text_pairs(torch, args.images, args.captions)
    functional, fused = torch.nn.functional, torch.ops.tessera.text_conditioned_loss
    pool = queries_once if args.composed else released
    share = 1.0 / labels.numel()

    def composed(tokens, texts, scale, bias, *parameters):
        pooled, gathered = pool(torch, args, tokens, texts, parameters, pair_texts)
        logits = scale * functional.cosine_similarity(pooled, gathered, dim=-1) + bias
        return (-functional.logsigmoid(labels * logits).sum() * share,)

    def ours(tokens, texts, scale, bias, *parameters):
        return (fused(tokens, texts, scale, bias, list(parameters), pair_texts, labels, args.heads, True) * share,)

    return (tokens, texts, scale, bias, *parameters), [torch.ones(())], {"eager": composed, "fused": ours}


# Maps a function for each operator to the operator's default sizes. The function takes torch and the sizes. It returns the inputs that need
# gradients, the gradients from which the backward pass starts, and {"eager": composed, "fused": ours}. Both composed(*inputs) and
# ours(*inputs) return the operator's results.
SIZES = {
    sparsify_group: {"batch": 64, "tokens": 55, "patches": 196, "width": 512},
    max_similarity: {"batch": 32, "patches": 196, "tokens": 55, "width": 256},
    token_max_projection: {"batch": 64, "positions": 196, "vocabulary": 30522, "width": 512},
    linear_cross_entropy: {"tokens": 4096, "vocabulary": 49408, "width": 512},
    linear_soft_cross_entropy: {"tokens": 16384, "vocabulary": 49408, "width": 768, "words": 20},
    flops_regularizer: {"rows": 8192, "vocabulary": 30522},
    text_conditioned_loss: {"images": 256, "captions": 8, "patches": 196, "width": 512, "heads": 8, "composed": 0},
}


def compare(args):
    torch = side_by_side.prepare(args)
    torch.manual_seed(0)
    inputs, gradients, operators = args.make(torch, args)

    def step(side):
        results = operators[side](*inputs)
        return [result.detach() for result in results], torch.autograd.grad(results, inputs, gradients)

    for ours, theirs in zip(*(sum(map(list, step(side)), []) for side in ("fused", "eager"))):
        difference = (ours - theirs).abs().max().item()
        assert difference < 1e-4, f"the two differ by {difference}"
    if args.memory_of:
        print(side_by_side.grown_memory(lambda: step(args.memory_of)))
        return
    # Results are as large as `gradients`, and the gradients of the inputs are as large as `inputs`.
    given = sum(tensor.nbytes for tensor in (*gradients, *inputs))
    memory = {side: side_by_side.in_fresh_process("--memory-of", side, environment=side_by_side.SMALL_BLOCKS) - given for side in operators}
    turns = {side: lambda side=side: side_by_side.seconds_of(lambda: step(side)) for side in operators}
    times = side_by_side.take_turns(turns, args.repetitions, pause=0)
    median = {side: statistics.median(values) for side, values in times.items()}
    sizes = " ".join(f"{name}={getattr(args, name)}" for name in SIZES[args.make])
    print(f"{args.make.__name__} forward + backward, {sizes}; {torch.get_num_threads()} threads, median of {args.repetitions}, "
          f"PyTorch {torch.__version__}\n")
    print("| | time, ms | fastest, ms | extra memory, MB | with results and gradients, MB |\n| --- | --- | --- | --- | --- |")
    for side in operators:
        print(f"| {side} | {1e3 * median[side]:.1f} | {1e3 * min(times[side]):.1f} | {memory[side] / 1e6:.1f} | "
              f"{(memory[side] + given) / 1e6:.1f} |")
    time_share, memory_share = median["fused"] / median["eager"], memory["fused"] / memory["eager"]
    print(f"\nfused / eager: time {time_share:.2f} ({1 / time_share:.2f} times as fast), extra memory {memory_share:.3f} (1/{1 / memory_share:.0f})")
    sys.exit(side_by_side.beyond_limits(args, time_share, memory_share))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    operators = parser.add_subparsers(metavar="OPERATOR", required=True)
    for make, sizes in SIZES.items():
        operator = operators.add_parser(make.__name__, description=make.__doc__)
        side_by_side.add_arguments(operator)
        operator.add_argument("--library", type=pathlib.Path, default=side_by_side.LIBRARY, help="libtessera_ops.so (default: %(default)s)")
        for name, size in sizes.items():
            operator.add_argument(f"--{name}", type=int, default=size, help="(default: %(default)s)")
        operator.set_defaults(make=make)
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
