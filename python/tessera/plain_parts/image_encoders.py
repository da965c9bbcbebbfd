"""Image encoders of plain models, which map pixels [B, 3, H, W] to Encoded."""
import torch
import torch.nn.functional as F

from .blocks import Encoded, activate, attend, fc_mlp, grouping
from .vit import vit


def tokens_of_map(x):
    """Returns the positions of a map [B, C, H, W] in row-major order, [B, H * W, C]."""
    return Encoded(x.flatten(2).transpose(1, 2))


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
    return tokens_of_map(x)


def timm_resnet_block(part, x, kind, stride, groups):
    y = x
    for i in ("1", "2", "3") if kind == "bottleneck" else ("1", "2"):
        strided = i == ("2" if kind == "bottleneck" else "1")
        kernel = part.weight(f"conv{i}.weight").shape[2]
        y = part.batch_norm(f"bn{i}", part.conv(f"conv{i}", y, stride=stride if strided else 1, padding=kernel // 2,
                                                groups=groups if strided else 1))
        y = y if f"{i}" == ("3" if kind == "bottleneck" else "2") else F.relu(y)
    down = part.inner("downsample")
    if down.has("2.weight"):  # ResNet-D: the mean of 2 x 2 positions, or of fewer at a border
        if stride > 1:
            x = F.avg_pool2d(F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2), mode="replicate"), 2)
        x = down.batch_norm("2", down.conv("1", x))
    elif down.has("0.weight"):
        x = down.batch_norm("1", down.conv("0", x, stride=stride))
    return F.relu(x + y)


def timm_resnet(part, pixels):
    s = part.setting
    if part.has("conv1.weight"):
        x = F.relu(part.batch_norm("bn1", part.conv("conv1", pixels, stride=2, padding=3)))
    else:
        x, stem = pixels, part.inner("conv1")
        for convolution, norm in (("0", "1"), ("3", "4")):
            x = F.relu(stem.batch_norm(norm, stem.conv(convolution, x, stride=2 if convolution == "0" else 1, padding=1)))
        x = F.relu(part.batch_norm("bn1", stem.conv("6", x, padding=1)))
    x = F.max_pool2d(x, 3, 2, 1)
    for stage, count in enumerate(s("layers", [3, 4, 6, 3])):
        for i in range(count):
            x = timm_resnet_block(part.inner(f"layer{stage + 1}.{i}"), x, s("block", "bottleneck"), 2 if stage > 0 and i == 0 else 1,
                                  s("groups", 1))
    return tokens_of_map(x)


def convnext_block(part, x, activation, eps):
    kernel = part.weight("conv_dw.weight").shape[2]
    y = part.norm("norm", part.conv("conv_dw", x, padding=kernel // 2, groups=x.shape[1]).permute(0, 2, 3, 1), eps)  # [B, H, W, C]
    mlp = part.inner("mlp")
    linear = lambda name, y: F.linear(y, mlp.weight(name + ".weight").flatten(1), mlp.weight(name + ".bias"))
    y = activate(linear("fc1", y), activation)
    if mlp.has("grn.weight"):
        lengths = y.square().sum((1, 2), keepdim=True).sqrt()
        y = y + (mlp.weight("grn.bias") + mlp.weight("grn.weight") * (y * (lengths / (lengths.mean(-1, keepdim=True) + 1e-6))))
    y = linear("fc2", y)
    y = y * part.weight("gamma") if part.has("gamma") else y
    return x + y.permute(0, 3, 1, 2)


def convnext(part, pixels):
    s = part.setting
    eps, activation, kind, stem = s("norm_eps", 1e-6), s("activation", "gelu"), s("stem", "patch"), part.inner("stem")
    if kind == "patch":
        x, last = stem.conv("0", pixels, stride=s("patch_size", 4)), 1
    else:
        last = 3 if kind == "overlap_act" else 2  # an activation takes up a number
        x = stem.conv("0", pixels, stride=2, padding=1)
        x = stem.conv(str(last - 1), activate(x, activation) if kind == "overlap_act" else x, stride=2, padding=1)
    x = stem.norm_of_map(str(last), x, eps)
    for stage, count in enumerate(s("layers", [3, 3, 9, 3])):
        at = part.inner(f"stages.{stage}")
        if stage > 0:
            x = at.conv("downsample.1", at.norm_of_map("downsample.0", x, eps), stride=2)
        for i in range(count):
            x = convnext_block(at.inner(f"blocks.{i}"), x, activation, eps)
    return tokens_of_map(part.norm_of_map("norm_pre", x, eps) if s("norm_first", False) else x)


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


ENCODERS = {"vit": vit, "modified_resnet": modified_resnet, "convnext": convnext, "timm_resnet": timm_resnet, "groupvit": groupvit}
