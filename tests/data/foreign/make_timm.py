#!/usr/bin/env python3
"""Writes the reference cases in timm/ in this folder: small random models of timm's classes, and timm's outputs. Writes timm_naflex*, too.
Needs torch, timm and safetensors; run it in this folder. It downloads nothing."""
import functools, math, pathlib, shutil
import timm, torch
from safetensors.torch import save_file
from timm.layers import HybridEmbed
from timm.models.convnext import ConvNeXt
from timm.models.eva import Eva
from timm.models.fastvit import FastVit, LayerNorm2d, RepConditionalPosEnc
from timm.models.resnet import BasicBlock, Bottleneck, ResNet
from timm.models.vision_transformer import VisionTransformer
from timm.models.vision_transformer_hybrid import ConvStem
from timm.models.vitamin import GeGluMlp, MbConvStages, VitCfg

FOLDER = pathlib.Path("timm")


def randomize(model, generator):
    """Moves every parameter and statistic away from its initial value, so that a reader that ignores one fails the test."""
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith("running_var"): value.uniform_(0.5, 1.5, generator=generator)
            elif name.endswith("gamma"): value.uniform_(0.2, 0.8, generator=generator)
            elif value.is_floating_point(): value.add_(0.1 * torch.randn(value.shape, generator=generator))
    return model.eval()


def write(name, tensors):
    FOLDER.mkdir(exist_ok=True); path = FOLDER / f"{name}.safetensors"
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, path)
    print(path, path.stat().st_size)


def weights(model): return {f"model.{k}": v for k, v in model.state_dict().items()}


def convnext(name, seed, **arguments):
    generator = torch.Generator().manual_seed(seed); torch.manual_seed(seed)
    model = randomize(ConvNeXt(num_classes=0, **({"depths": (1, 2, 1, 1), "dims": (8, 12, 16, 20)} | arguments)), generator)
    pixels = torch.randn(2, 3, 64, 32, generator=generator).requires_grad_()
    tokens = model.forward_features(pixels); pooled = model.forward_head(tokens)
    gradient, = torch.autograd.grad(pooled.square().sum(), pixels)
    write(f"convnext_{name}", {"pixels": pixels, "map": tokens, "pooled": pooled, "pixels_gradient": gradient} | weights(model))


def fastvit(name, seed, size, **arguments):
    generator = torch.Generator().manual_seed(seed); torch.manual_seed(seed)
    model = randomize(FastVit(num_classes=0, **arguments), generator)
    pixels = torch.randn(2, 3, *size, generator=generator).requires_grad_()
    tokens = model.forward_features(pixels); pooled = model.forward_head(tokens, pre_logits=True)
    gradient, = torch.autograd.grad(pooled.square().sum(), pixels)
    write(f"fastvit_{name}", {"pixels": pixels, "map": tokens, "pooled": pooled, "pixels_gradient": gradient} | weights(model))


def fastvits():
    positions = functools.partial(RepConditionalPosEnc, spatial_shape=(7, 7))
    mixers = lambda stages: ("repmixer",) * (stages - 1) + ("attention",)
    fastvit("mci0", 51, (64, 96), layers=(1, 1, 1, 1), embed_dims=(8, 16, 16, 32), mlp_ratios=(3,) * 4, se_downsamples=(False, False, True, True), pos_embs=(None,) * 3 + (positions,), token_mixers=mixers(4), lkc_use_act=True)
    fastvit("mci3", 52, (40, 32), layers=(1, 2, 1), embed_dims=(8, 16, 32), mlp_ratios=(2,) * 3, downsamples=(False, True, True), se_downsamples=(False,) * 3, pos_embs=(None,) * 2 + (positions,), token_mixers=mixers(3), lkc_use_act=True,
            norm_layer=functools.partial(LayerNorm2d, eps=1e-5), stem_use_scale_branch=False)
    fastvit("t8", 53, (32, 32), layers=(1, 1), embed_dims=(8, 16), mlp_ratios=(3,) * 2, downsamples=(False, True), se_downsamples=(False,) * 2, pos_embs=(None,) * 2, token_mixers=("repmixer",) * 2)


def formula(shape, seed):
    """Returns numbers in [-0.5, 0.5), each computed from its index and `seed`. Integer arithmetic makes them equal in Python and C++."""
    h = (torch.arange(math.prod(shape)) * 747796405 + seed * 2891336453 + 1) % 2**32
    h = h ^ (h // 2**16); h = (h * 73244475) % 2**32; h = h ^ (h // 2**16)
    return (h.double() / 2**32 - 0.5).reshape(shape)


def fill_by_formula(model):
    """Fills each tensor with formula(shape, n), scaled to suit its role; n is its index among the sorted names."""
    for seed, (name, value) in enumerate(sorted(model.state_dict().items())):
        if name.endswith("num_batches_tracked"): continue
        x = formula(value.shape, seed)
        if value.dim() > 1: x = x * math.sqrt(24 / value[0].numel())
        elif name.endswith("running_var"): x = 1 + x
        elif name.endswith("weight"): x = 1 + 0.2 * x
        else: x = 0.2 * x
        value.copy_(x)
    return model.eval()


def resnet(name, seed, size=(64, 32), **arguments):
    """Writes a ResNet. timm has no narrow ones, so the file holds only names and shapes; fill_by_formula() determines the weights."""
    model = fill_by_formula(ResNet(layers=(1, 2, 1, 1), num_classes=0, **arguments))
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(2, 3, *size, generator=generator)
    with torch.no_grad(): tokens = model.forward_features(pixels)
    shapes = {f"shape.{k}": torch.tensor(v.shape, dtype=torch.int64) for k, v in model.state_dict().items()}
    write(f"resnet_{name}", {"pixels": pixels, "map": tokens, "pooled": tokens.mean((2, 3))} | shapes)


def stem():
    generator = torch.Generator().manual_seed(31); torch.manual_seed(31)
    model = randomize(ConvStem(channels=(8, 8, 32), stride=(4, 2, 2), kernel_size=(4, 2, 2), padding=0, act_layer=torch.nn.GELU), generator)
    pixels = torch.randn(2, 3, 48, 32, generator=generator)
    with torch.no_grad(): write("mobileclip_stem", {"pixels": pixels, "map": model(pixels)} | weights(model))


def transformer(name, seed, model, size):
    generator = torch.Generator().manual_seed(seed)
    randomize(model, generator)
    pixels = torch.randn(2, 3, size, size, generator=generator)
    with torch.no_grad(): write(name, {"pixels": pixels, "pooled": model.forward_head(model.forward_features(pixels), pre_logits=True)} | weights(model))


def transformers():
    torch.manual_seed(41)
    stages = MbConvStages(VitCfg(embed_dim=(8, 16, 16), depths=(2, 4, 1), stem_width=8))
    vitamin = VisionTransformer(img_size=32, patch_size=1, embed_layer=functools.partial(HybridEmbed, backbone=stages, proj=False), embed_dim=16, depth=1, num_heads=2,
                                mlp_layer=GeGluMlp, mlp_ratio=2.0, class_token=False, global_pool="avg", num_classes=0)
    transformer("vitamin", 41, vitamin, 32)
    transformer("eva_norms_on_updates", 42, Eva(img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, mlp_ratio=3, use_post_norm=True, global_pool="token", num_classes=0), 16)


def naflex(folder, seed, name, **arguments):
    """Writes a folder of a NaFlexVit as timm publishes it, and its embeddings of images of several shapes, some of them padded."""
    generator = torch.Generator().manual_seed(seed); torch.manual_seed(seed)
    model = randomize(timm.create_model(name, num_classes=0, patch_size=4, embed_dim=16, num_heads=2, **arguments), generator); shutil.rmtree(folder, ignore_errors=True)
    timm.models.save_for_hf(model, folder, model_args={"patch_size": 4, "embed_dim": 16, "num_heads": 2} | arguments, safe_serialization=True)
    # No grid has a width of 1: PyTorch 2.11 resizes timm's positions (channels last) to such grids with errors as large as the positions.
    grids = torch.tensor([[4, 4], [3, 7], [6, 2], [1, 5], [12, 2]]); mask = torch.arange(24) < grids.prod(1, keepdim=True); patches = torch.randn(5, 24, 48, generator=generator)
    places = torch.arange(24).expand(5, 24); coordinates = torch.stack([places // grids[:, 1:], places % grids[:, 1:]], 2) * mask[..., None]
    with torch.no_grad(): image = model({"patches": patches, "patch_coord": coordinates, "patch_valid": mask})
    save_file({"patches": patches, "grids": grids, "mask": mask, "image": image.contiguous()}, f"{folder}/expected.safetensors")
    print(folder, sum(f.stat().st_size for f in pathlib.Path(folder).iterdir()))


def main():
    torch.set_num_threads(1)
    naflex("timm_naflex", 61, "naflexvit_base_patch16_siglip", depth=2)
    naflex("timm_naflex_gap", 62, "naflexvit_so150m2_patch16_reg1_gap", depth=2, mlp_ratio=3)
    convnext("patch", 11)
    convnext("overlap_tiered", 12, stem_type="overlap_tiered", dims=(24, 8, 12, 16), conv_mlp=True, act_layer="gelu_tanh")
    convnext("overlap_act", 13, stem_type="overlap_act", conv_mlp=True, use_grn=True, ls_init_value=None, kernel_sizes=(3, 5, 7, 3), act_layer="silu")
    convnext("overlap", 14, stem_type="overlap", use_grn=True, ls_init_value=None, conv_bias=False, norm_eps=1e-3)
    convnext("norm_first", 15, head_norm_first=True, norm_eps=1e-5)
    with torch.no_grad():
        resnet("basic", 21, block=BasicBlock)
        resnet("bottleneck", 22, block=Bottleneck)
        resnet("deep_tiered", 23, block=Bottleneck, stem_type="deep_tiered", stem_width=32, avg_down=True, cardinality=2, base_width=16)
        resnet("deep", 24, size=(80, 48), block=BasicBlock, stem_type="deep", stem_width=16, avg_down=True)
    stem()
    transformers()
    fastvits()


if __name__ == "__main__": main()
