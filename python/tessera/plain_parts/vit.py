"""The vision transformer of plain models, for images of one size and for images of their own shapes (NaFlex)."""
import collections
import math

import torch
import torch.nn.functional as F

from .blocks import Encoded, activate, block, zero_padding

# Where patches are: their rows and columns in a grid, and the grid's rows and columns. For one grid, `row` and `column` are [P] and the
# others are numbers; for a grid per image, they are [B, T] and [B, 1].
Places = collections.namedtuple("Places", "row column rows columns")


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



def places_in(grid, device):
    rows, columns = grid
    number = torch.arange(rows * columns, device=device)
    return Places(number // columns, number % columns, rows, columns)


def places_of_each(grids, count):
    """Returns the places of `count` patches of each image, from grids [B, 2]. Padding has places in the image's last row."""
    rows, columns = grids.clamp_min(1).split(1, 1)
    number = torch.arange(count, device=grids.device)
    return Places(torch.minimum(number // columns, rows - 1), number % columns, rows, columns)


def rotation_of(settings, places, head_width, prefix):
    """Returns cosines and sines [.., prefix + P, head_width / 2] of rotary positions, and which channels form a pair."""
    s = {"base": 10000.0, "coordinates": "index", "offset": 0.0, "order": "rows_first", "pairs": "neighbors"}
    s.update({key: value for key, value in settings.items() if value is not None})
    reference = s.get("reference")
    reference = [reference] * 2 if isinstance(reference, int) else reference or [None, None]
    centered = s["coordinates"] == "centered"
    bands = head_width // 4
    speeds = (2 * math.pi if centered else 1.0) / s["base"] ** (torch.arange(bands, device=places.row.device) / bands)

    def angles(place, count, stretched):
        place = place + s["offset"]
        if centered:
            place = (place + 0.5) / count * 2 - 1
        return (place / count * stretched if stretched else place)[..., None] * speeds

    by_row, by_column = angles(places.row, places.rows, reference[0]), angles(places.column, places.columns, reference[1])
    both = torch.cat([by_row, by_column] if s["order"] == "rows_first" else [by_column, by_row], -1)
    both = F.pad(both, (0, 0, prefix, 0))  # tokens before the patches are not rotated
    return both.cos(), both.sin(), s["pairs"]


def bicubic_weights(place, count, old, antialias):
    """Returns the weights [.., P, old] by which torch.nn.functional.interpolate computes row `place` of `count` rows from `old` rows."""
    a = -0.5 if antialias else -0.75
    scale = old / count
    stretch = torch.as_tensor(scale).clamp_min(1)[..., None] if antialias else 1
    near = torch.arange(-2, old + 2, device=place.device)  # rows beyond the border are copies of the border, unless antialiased
    x = ((near + 0.5 - ((place + 0.5) * scale)[..., None]) / stretch).abs()
    weights = torch.where(x <= 1, ((a + 2) * x - (a + 3)) * x * x + 1, torch.where(x < 2, (((x - 5) * x + 8) * x - 4) * a, 0.0))
    if antialias:
        weights = weights[..., 2:-2]
        return weights / weights.sum(-1, keepdim=True)
    return weights @ F.one_hot(near.clamp(0, old - 1), old).to(weights.dtype)


def image_positions(part, prefix, places, own_grid):
    """Returns the learned positions [.., prefix + P, w], resampled from own_grid to the grid of the places, with zeros for the tokens
    before the patches that have none."""
    positions = part.weight("positional_embedding")
    which = part.setting("prefix_positions", "class_token")
    own = prefix if which == "all" else int(which == "class_token" and part.setting("class_token", True))
    before = torch.cat([positions[:own], positions.new_zeros(prefix - own, positions.shape[1])])
    of_patches = positions[own:]
    if places.row.dim() == 1:
        return torch.cat([before, of_patches])
    antialias = part.setting("position_resampling", "antialiased") == "antialiased"
    by_row = bicubic_weights(places.row, places.rows, own_grid[0], antialias)
    by_column = bicubic_weights(places.column, places.columns, own_grid[1], antialias)
    weights = (by_row[..., :, None] * by_column[..., None, :]).flatten(-2)
    of_patches = (weights @ of_patches.to(weights.dtype)).to(positions.dtype)
    return torch.cat([before.expand(of_patches.shape[0], -1, -1), of_patches], 1)


def mobileclip_stem(part, pixels):
    x = pixels
    for i, stride in enumerate((4, 2)):
        step = part.inner(str(i))
        x = F.gelu(step.batch_norm("bn", step.conv("conv", x, stride=stride)))
    return part.conv("2.conv", x, stride=2)


def inverted_bottleneck(part, x, stride):
    shortcut = F.avg_pool2d(x, 3, 2, 1, count_include_pad=False) if stride > 1 else x
    if part.has("shortcut.expand.weight"):
        shortcut = part.conv("shortcut.expand", shortcut)
    x = F.gelu(part.conv("conv1_1x1", part.norm_of_map("pre_norm", x, 1e-6)))
    return shortcut + part.conv("conv3_1x1", F.gelu(part.conv("conv2_kxk", x, stride=stride, padding=1, groups=x.shape[1])))


def vitamin_stem(part, pixels):
    stem, pool = part.inner("stem"), part.inner("pool")
    x = F.gelu(stem.norm_of_map("norm1", stem.conv("conv1", pixels, stride=2, padding=1), 1e-6))
    x = stem.conv("conv2", x, padding=1)
    for stage, count in enumerate((2, 4)):
        for i in range(count):
            x = inverted_bottleneck(part.inner(f"stages.{stage}.{i}"), x, 2 if i == 0 else 1)
    return pool.conv("proj", pool.norm_of_map("norm", x, 1e-6), stride=2, padding=1)


STEMS = {"mobileclip": mobileclip_stem, "vitamin": vitamin_stem}


def vit(part, pixels, mask=None, grids=None):
    """Takes pixels [B, 3, H, W], or images of their own shapes: patches [B, T, height * width * 3], a mask [B, T] and grids [B, 2]."""
    s = part.setting
    activation, eps = s("activation", "gelu"), s("norm_eps", 1e-5)
    class_token = s("class_token", True)
    if grids is not None:
        mask, kernel = mask != 0, part.weight("conv1.weight").permute(0, 2, 3, 1).flatten(1)
        x = F.linear(zero_padding(pixels, mask), kernel, part.get("conv1.bias"))
        places = places_of_each(grids, x.shape[1])
    else:
        stem = s("stem", "patch")
        x = part.conv("conv1", pixels, stride=part.weight("conv1.weight").shape[2:]) if stem == "patch" else \
            STEMS[stem](part.inner("conv1"), pixels)
        grid = x.shape[2:]
        x, places = x.flatten(2).mT, places_in(grid, x.device)
    before = ([part.weight("class_embedding")[None]] if class_token else []) + \
        ([part.weight("register_embedding")] if part.has("register_embedding") else [])
    prefix = sum(len(tokens) for tokens in before)
    x = torch.cat([tokens.expand(x.shape[0], -1, -1) for tokens in before] + [x], 1)
    if part.has("positional_embedding"):
        side = lambda name, axis: s(name, 0) if isinstance(s(name, 0), int) else s(name, 0)[axis]
        own_grid = [side("image_size", axis) // max(1, side("patch_size", axis)) for axis in (0, 1)]
        x = x + image_positions(part, prefix, places, own_grid)
    if s("pre_norm", True):
        x = part.norm("ln_pre", x, eps)
    rotary = part.settings.get("rotary")
    head_width = s("head_width", x.shape[2] // s("heads", 12))
    rotation = rotation_of(rotary, places, head_width, prefix) if rotary else None
    keys = None if mask is None else F.pad(mask, (prefix, 0), value=True)
    convolved = s("leff", {})
    for i in range(s("layers", 12)):
        with_leff = convolved and i < convolved.get("layers", 9)
        x = part.inner(f"transformer.resblocks.{i}").call(
            block, x, s("heads", 12), activation, eps, keys, rotation=rotation, norms=s("block_norm", "before"),
            feed_forward=leff(convolved, activation, grid, class_token) if with_leff else None)
    if s("final_norm", "tokens") == "tokens":
        x = part.norm("ln_post", x, eps)
    return Encoded(zero_padding(x[:, prefix:], mask), x[:, 0] if class_token else None, mask)
