"""Tessera's operators in PyTorch: losses on patches and words without large intermediate tensors.

    import tessera
    grouped = tessera.sparsify_group(words, patches, mask)      # SPARC's patches grouped by word

All operators have gradients and run on CPUs and NVIDIA GPUs. All except the two text-conditioned ones support `torch.compile` and
autocast. The first call loads the library (tessera.load_library). Wrong shapes, types and devices raise RuntimeError with the tensor's
name.
"""
from __future__ import annotations

from typing import Mapping, Optional, Sequence

import torch
from torch import Tensor

from . import _library
from ._library import load_library

__all__ = ["flops_regularizer", "linear_cross_entropy", "linear_soft_cross_entropy", "max_similarity", "roi_align", "sparsify_group",
           "text_conditioned_loss", "text_conditioned_pool", "token_max_projection"]


class _Operators:
    """The library's operators. An argument of a wrong Python type is reported in one line, without PyTorch's declarations."""

    def __getattr__(self, name):
        operator = getattr(torch.ops.tessera, name)

        def call(*arguments, **settings):
            try:
                return operator(*arguments, **settings)
            except RuntimeError as error:
                text = str(error)
                if "\nDeclaration: " not in text:
                    raise
                raise RuntimeError(text.split("\n")[0].replace("tessera::", "", 1).replace("() Expected", ": expected", 1)) from None
        return call


_OPERATORS = _Operators()


def _operators():
    if _library.loaded is None:
        load_library()
    return _OPERATORS


def _or_all(mask: Optional[Tensor], tokens: Tensor) -> Optional[Tensor]:
    return tokens.new_ones(tokens.shape[:2], dtype=torch.bool) if mask is None and isinstance(tokens, Tensor) else mask


def sparsify_group(text_tokens: Tensor, image_tokens: Tensor, text_mask: Optional[Tensor] = None, *, weights: str = "minmax",
                   threshold: Optional[float] = None, sparsify: bool = True, softmax_temperature: float = 1.0) -> Tensor:
    """Groups the patches of each image by the words of its caption (SPARC, Bica et al. 2024, eq. 2-5).

    For each word, the dot products with all patches are scaled to 0..1; values below the threshold become 0, and the rest is normalized to
    sum 1. The result is the patches' sum with these weights. [B, L, P] is never held: the kernels keep the inputs and three numbers per
    word.

    text_tokens   [B, L, D]  words, not normalized; any floating-point type
    image_tokens  [B, P, D]  patches; P at least 1, same device
    text_mask     [B, L]     bool, True = a real word; None: all. Padding may hold anything; its result is 0 and it gets no gradient
    weights       "minmax", or "softmax" of the products divided by softmax_temperature
    threshold     in 0..1; None: 1/P, as in the paper. sparsify=False: 0
    returns       [B, L, D]  in the wider of the two types; autocast does not change it
    raises        RuntimeError that names the tensor
    Differentiable in both token tensors, once, or in float64 any number of times. A row of equal products has weights 1/P.

    The first word is nearest to the first patch, the second to both of the others:

    >>> words = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> patches = torch.tensor([[[2.0, 0.0], [0.0, 2.0], [0.5, 2.0]]])
    >>> sparsify_group(words, patches)
    tensor([[[2.0000, 0.0000],
             [0.2500, 2.0000]]])
    >>> sparsify_group(words, patches, torch.tensor([[True, False]]))
    tensor([[[2., 0.],
             [0., 0.]]])
    """
    return _operators().sparsify_group(text_tokens, image_tokens, _or_all(text_mask, text_tokens), weights=weights, threshold=threshold,
                                       sparsify=sparsify, softmax_temperature=softmax_temperature)


def flops_regularizer(encoding: Tensor, *, dense_gradient: bool = False) -> Tensor:
    """STAIR's FLOPs regularizer (Chen et al. 2023, eq. 6; Paria et al. 2020): the sum over columns of (mean over rows)^2.

    It estimates the multiplications per pair of encodings in an exact search, and pushes rarely used columns to 0.

    encoding        [N, V]  N and V at least 1; float32, bfloat16, float16 or float64
    dense_gradient  The gradient is the same in every row. Autograd receives it as a view that repeats one row [V] and takes no other
                    memory; a leaf's .grad is dense. True: write all rows, so that hooks can change the gradient in place (not for float64)
    returns         []      float32 (float64 for float64)
    raises          RuntimeError
    Differentiable once, or in float64 any number of times; keeps [V] for the backward pass. It covers only the rows of this process.

    >>> flops_regularizer(torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 0.0]]))      # the means are 2, 0, 1
    tensor(5.)
    """
    return _operators().flops_regularizer(encoding, dense_gradient=dense_gradient)


def max_similarity(patches: Tensor, tokens: Tensor, patch_keep: Optional[Tensor] = None, token_keep: Optional[Tensor] = None, *,
                   chunk: Optional[int] = None) -> tuple[Tensor, Tensor]:
    """Token-wise maximum similarity of every image with every text (FILIP, Yao et al. 2022, eq. 4-5).

    [B, C, P, L] is never held; the backward pass adds rows at the positions of the maxima.

    patches     [B, P, D]  float32 or float64, on a GPU also bfloat16; normalized by the caller. P from 1 to 32,767
    tokens      [C, L, D]  of the same type and device. L up to 32,767, for a GPU's kernels up to 1,024
    patch_keep  [B, P]     bool, True = use the patch; None: all
    token_keep  [C, L]     bool, True = use the token; None: all. Other tokens have no effect, even NaN, and get no gradient
    chunk       texts per tile for composed operations (float64); None: as many as fit into about 64 MB
    returns     i2t [B, C], the mean over patches of the maximum over words; t2i [B, C], the mean over words of the maximum over
                patches; float32 for bfloat16. An image without kept patches has similarity 0 with every text, and a text without
                kept words has similarity 0 with every image
    raises      RuntimeError that names the tensor
    Differentiable once.

    >>> patches = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> tokens = torch.tensor([[[1.0, 0.0], [0.6, 0.8]], [[0.0, 1.0], [0.0, 1.0]]])
    >>> i2t, t2i = max_similarity(patches, tokens)
    >>> i2t, t2i
    (tensor([[0.9000, 0.5000]]), tensor([[0.9000, 1.0000]]))
    """
    found = _operators().max_similarity(patches, tokens, _or_all(patch_keep, patches), _or_all(token_keep, tokens), chunk=chunk)
    return tuple(found)


def token_max_projection(tokens: Tensor, mask: Optional[Tensor], table: Tensor, bias: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
    """STAIR's token projection head after its transform (Chen et al. 2023, eq. 4-5), as in SPLADE: for each entry of a vocabulary
    log(1 + relu(the maximum over positions of position . entry + bias)).

    [B, N, V] is never held. The backward pass computes no matrix product, and entries that are 0 cost nothing.

    tokens   [B, N, w]  float32, bfloat16, float16 or float64; N and w at least 1
    mask     [B, N]     bool, True = a real position; None: all. Padding may hold anything and gets no gradient
    table    [V, w]     of the tokens' type
    bias     [V]        floating; None: zeros
    returns  encoding [B, V] float32 (float64 for float64), at least 0; argmax [B, V] int64, the position of each maximum, -1 in a row
             without a real position
    raises   RuntimeError that names the tensor
    Differentiable once, in tokens, table and bias.

    >>> tokens = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
    >>> table = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    >>> encoding, argmax = token_max_projection(tokens, None, table, torch.zeros(3))
    >>> encoding.expm1(), argmax
    (tensor([[1., 3., 0.]]), tensor([[0, 1, 0]]))
    >>> torch.equal(encoding, token_max_projection(tokens, None, table)[0])
    True
    """
    if bias is None:
        bias = table.new_zeros(table.shape[0])
    return tuple(_operators().token_max_projection(tokens, mask, table, bias))


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Optional[Tensor] = None, *, ignore_index: int = -100,
                         reduction: str = "mean") -> Tensor:
    """torch.nn.functional.cross_entropy(linear(hidden, weight, bias), targets) without the logits [T, V].

    Only a tile of rows is held at a time. If a gradient is needed, the forward pass computes it together with the loss, so that no product
    is computed twice. Until the backward pass this takes as much memory as hidden and weight in float32.

    hidden        [T, D]  float32, bfloat16, float16 or float64; D at least 1
    weight        [V, D]  of hidden's type (any floating type under autocast)
    targets       [T]     int64 in [0, V), or ignore_index: such a row may hold anything and gets no gradient
    bias          [V]     floating, or None
    reduction     "mean" over the targets that are not ignored, or "sum"
    returns       []      float32 (float64 for float64); 0 if every target is ignored
    raises        RuntimeError that names the tensor; on a CPU also for a target that is out of range
    Differentiable once, in hidden, weight and bias. Runs with the same number of threads give the same loss.

    >>> hidden, weight = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> linear_cross_entropy(hidden, weight, torch.tensor([0, -100]))
    tensor(0.2395)
    >>> torch.nn.functional.cross_entropy(hidden @ weight.T, torch.tensor([0, -100]))
    tensor(0.2395)
    """
    return _operators().linear_cross_entropy(hidden, weight, targets, bias, ignore_index=ignore_index, reduction=reduction)


def linear_soft_cross_entropy(hidden: Tensor, weight: Tensor, ids: Tensor, id_weights: Tensor, bias: Optional[Tensor] = None, *,
                              reduction: str = "mean", tile: Optional[int] = None) -> Tensor:
    """-(y * log_softmax(linear(hidden, weight, bias))).sum() without the logits and y [T, V], for sparse targets y.

    y[t, v] is the sum of the id_weights[t, j] with ids[t, j] = v, for example the words of a caption (SuperCLIP).

    hidden        [T, D]  float32, bfloat16, float16 or float64; D at least 1
    weight        [V, D]  of hidden's type (any floating type under autocast)
    ids           [T, n]  int64 in [0, V), n at least 1; any value where the weight is 0
    id_weights    [T, n]  floating, with any sum; gets no gradient
    bias          [V]     floating, or None
    reduction     "mean" over all T rows, or "sum"; a row without weights adds 0, may hold anything and gets no gradient
    tile          logits that are held at a time, in whole rows; None: 16,777,216
    returns       []      float32 (float64 for float64)
    raises        RuntimeError that names the tensor; on a CPU also for an id that is out of range
    Differentiable once, in hidden, weight and bias. Memory as for linear_cross_entropy.

    >>> hidden, weight = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> linear_soft_cross_entropy(hidden, weight, torch.tensor([[0, 2], [-1, -1]]), torch.tensor([[0.75, 0.25], [0.0, 0.0]]), reduction="sum")
    tensor(0.7395)
    >>> -(torch.tensor([0.75, 0.0, 0.25]) * torch.log_softmax(hidden @ weight.T, 1)[0]).sum()
    tensor(0.7395)
    """
    return _operators().linear_soft_cross_entropy(hidden, weight, ids, id_weights, bias, reduction=reduction, tile=tile)


def roi_align(features: Tensor, boxes: Tensor, image: Tensor, output_size: int | Sequence[int] = 1, *, sampling_ratio: int = 0,
              aligned: bool = True) -> Tensor:
    """RoIAlign (Mask R-CNN, He et al. 2017): the mean of bilinearly interpolated features in each bin of each box.

    Like torchvision.ops.roi_align, but with channels last, so that a ViT's tokens need no transpose, and with `aligned=True` by default.

    features        [B, H, W, C]  floating; tokens [B, H * W, C] as tokens.unflatten(1, (H, W))
    boxes           [K, 4]        left, top, right, bottom in cells of the grid; no gradient
    image           [K]           int64, the image of each box
    output_size     bins of a box: rows and columns, or one number for both
    sampling_ratio  points per bin and axis; 0 or less: the bin's size in cells, rounded up
    aligned         a box from 0 to 1 covers cell 0; False: it is shifted by half a cell, and boxes are at least one cell in size
    returns         [K, rows, columns, C]  in the features' type; sums are float32 (float64 for float64)
    raises          RuntimeError that names the tensor
    A point more than a cell outside the image counts as 0. Differentiable once, in the features; the gradient is deterministic.

    >>> features = torch.arange(16.0).view(1, 4, 4, 1)
    >>> boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [1.0, 2.0, 2.0, 3.0]])
    >>> roi_align(features, boxes, torch.tensor([0, 0])).flatten()
    tensor([7.5000, 9.0000])
    """
    size = (output_size, output_size) if isinstance(output_size, int) else tuple(output_size)
    return _operators().roi_align(features, boxes, image, size, sampling_ratio, aligned)


_POOL_PARAMETERS = ["ln_q.weight", "ln_q.bias", "ln_k.weight", "ln_k.bias", "ln_v.weight", "ln_v.bias", "attn.in_proj_weight",
                    "attn.in_proj_bias", "attn.out_proj.weight", "attn.out_proj.bias"]


def _pool_parameters(parameters: Mapping[str, Tensor]) -> list[Tensor]:
    missing = [name for name in _POOL_PARAMETERS if name not in parameters]
    if missing:
        raise RuntimeError(f"text_conditioned_pool: parameters lacks {', '.join(missing)}")
    return [parameters[name] for name in _POOL_PARAMETERS]


def text_conditioned_pool(image_tokens: Tensor, queries: Tensor, parameters: Mapping[str, Tensor], *, heads: int = 8,
                          zero_token: bool = True) -> Tensor:
    """Pools images by texts (FLAIR): multi-head attention of text queries over each image's tokens, without storing the attention weights.

    image_tokens  [B, P, D]  floating, P at least 1
    queries       [B, Q, D]  separate queries for each image, or [Q, D] shared by all images
    parameters    a dict with FLAIR's names: ln_q, ln_k, ln_v (weight, bias [D]), attn.in_proj_weight [3D, D], attn.in_proj_bias,
                  attn.out_proj.weight [D, D], attn.out_proj.bias
    zero_token    adds a key and value of zeros, so that a text can attend to nothing
    returns       [B, Q, D]  not normalized
    raises        RuntimeError that names the tensor or parameter
    Differentiable in everything.

    >>> names = ["ln_q", "ln_k", "ln_v"]
    >>> parameters = {f"{n}.weight": torch.ones(2) for n in names} | {f"{n}.bias": torch.zeros(2) for n in names}
    >>> parameters |= {"attn.in_proj_weight": torch.eye(2).repeat(3, 1), "attn.in_proj_bias": torch.zeros(6)}
    >>> parameters |= {"attn.out_proj.weight": torch.eye(2), "attn.out_proj.bias": torch.zeros(2)}
    >>> text_conditioned_pool(torch.tensor([[[4.0, 0.0], [0.0, 4.0]]]), torch.tensor([[9.0, 1.0]]), parameters, heads=1)
    tensor([[[ 0.7225, -0.7225]]])
    """
    return _operators().text_conditioned_pool(image_tokens, queries, _pool_parameters(parameters), heads, zero_token)


def text_conditioned_loss(image_tokens: Tensor, texts: Tensor, scale: Tensor, bias: Tensor, parameters: Mapping[str, Tensor],
                          pair_texts: Tensor, pair_labels: Tensor, *, heads: int = 8, zero_token: bool = True) -> Tensor:
    """FLAIR's conditioned sigmoid loss, summed over pairs of image i and text t: -log sigmoid(label (scale cos(v(i|t), t) + bias)).

    Here v(i|t) is text_conditioned_pool of image i for text t. v and the attention are held for a part of the pairs at a time: on a
    CPU for some pairs of one image, on a GPU for several images. The forward pass computes the gradients together with the loss; until the backward pass this takes as much memory as image_tokens. It
    is not supported in graphs of torch.compile.

    image_tokens  [B, P, D]  float32 or float64 (narrower types are widened); texts and parameters are converted to the same type. With
                             bfloat16 tokens, the operands of all products with patches and pairs are rounded to bfloat16
    texts         [M, D]     embeddings, not normalized
    scale, bias   []         1/temperature and bias
    parameters    as for text_conditioned_pool
    pair_texts    [B, C]     int64, the rows of texts that each image is compared with
    pair_labels   [B, C]     int8, 1 for an image's own text, -1 for another's, 0 for no pair
    returns       []         the sum over pairs
    raises        RuntimeError that names the tensor or parameter
    Differentiable once, in everything except the pairs. Runs with the same number of threads give the same loss.

    >>> names = ["ln_q", "ln_k", "ln_v"]
    >>> parameters = {f"{n}.weight": torch.ones(2) for n in names} | {f"{n}.bias": torch.zeros(2) for n in names}
    >>> parameters |= {"attn.in_proj_weight": torch.eye(2).repeat(3, 1), "attn.in_proj_bias": torch.zeros(6)}
    >>> parameters |= {"attn.out_proj.weight": torch.eye(2), "attn.out_proj.bias": torch.zeros(2)}
    >>> tokens, texts = torch.tensor([[[4.0, 0.0], [0.0, 4.0]]]), torch.tensor([[9.0, 1.0], [-1.0, 1.0]])
    >>> ten, none = torch.tensor(10.0), torch.tensor(0.0)
    >>> text_conditioned_loss(tokens, texts, ten, none, parameters, torch.tensor([[0]]), torch.tensor([[1]], dtype=torch.int8), heads=1)
    tensor(0.0019)
    """
    return _operators().text_conditioned_loss(image_tokens, texts, scale, bias, _pool_parameters(parameters), pair_texts, pair_labels, heads,
                                              zero_token)


try:
    load_library()
except ImportError:
    pass  # the first use of an operator tries again and reports what is missing
