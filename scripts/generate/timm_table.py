#!/usr/bin/env python3
"""Writes configs/architectures/timm.json: our settings for timm's vision transformers (also NaFlex), ConvNeXts, ResNets and FastViTs, or the
reason why a model is refused. For models of other families, the file has only the names that OpenCLIP uses.

    scripts/generate/timm_table.py [OUT]        needs timm and torch; downloads nothing
    scripts/generate/timm_table.py --check [NAME ...]   compares the table's models, one block per stage, with timm (patterns such as 'eva*')

The script builds each model on the meta device and inspects its modules, so that the table describes what timm computes and not what a
name suggests. Run the script again when timm has new models.
"""
import fnmatch, json, pathlib, subprocess, sys, tempfile, warnings

if "-h" in sys.argv or "--help" in sys.argv:
    print(__doc__)
    sys.exit(0)
try:
    import timm, torch
    from torch import nn
except ImportError as error:
    sys.exit(f"generate/timm_table.py: {sys.executable}: {error}: pip install timm")

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = ("vit_", "deit_", "deit3_", "eva", "convnext", "resnet", "resnext", "wide_resnet", "vitamin_", "fastvit_", "naflexvit_", "swin_base_patch4_window7_224")
ACTIVATIONS = {"GELU": "gelu", "SiLU": "silu", "QuickGELU": "quick_gelu", "GELUTanh": "gelu_tanh", "ReLU": "relu"}

STEMS = {"ConvStem": "mobileclip", "MbConvStages": "vitamin"}
LACKING = {"SwinTransformer": "attention in windows", "VisionTransformerRelPos": "relative position biases"}


class Refused(Exception):
    """Raised for a part of timm's model that our models lack. The text names the part."""


def need(condition, reason):
    if not condition: raise Refused(reason)


def is_identity(module): return module is None or isinstance(module, nn.Identity)


def activation(module):
    if isinstance(module, nn.GELU) and module.approximate == "tanh": return "gelu_tanh"
    need(type(module).__name__ in ACTIVATIONS, f"the activation {type(module).__name__}")
    return ACTIVATIONS[type(module).__name__]


def norm_eps(module):
    need(isinstance(module, nn.LayerNorm) and module.elementwise_affine and module.bias is not None, f"the norm {type(module).__name__}")
    return module.eps


def mlp(module, row):
    kind = type(module).__name__
    if kind == "Mlp":
        row["mlp_hidden"] = module.fc1.out_features
    elif kind in ("GluMlp", "SwiGLUPacked"):
        row |= {"mlp": "gated", "mlp_hidden": module.fc2.in_features, "packed": "last" if module.gate_last else "first"}
    elif kind == "GeGluMlp":
        row |= {"mlp": "gated", "mlp_hidden": module.w2.in_features, "mlp_input_norm": True, "activation": activation(module.act)}
        need(norm_eps(module.norm) == row["norm_eps"], "an MLP's norm with an epsilon of its own")
        return
    elif kind == "SwiGLU":
        row |= {"mlp": "gated", "mlp_hidden": module.fc2.in_features}
    else:
        raise Refused(f"the MLP {kind}")
    first = module.fc1_g if kind == "SwiGLU" else module.fc1
    need(first.bias is not None and module.fc2.bias is not None, "an MLP without biases")
    row["activation"] = activation(module.act)
    if not is_identity(module.norm):
        norm_eps(module.norm); row["mlp_norm"] = True


def attention(module, row):
    kind = type(module).__name__
    need(kind in ("Attention", "EvaAttention", "AttentionRope"), f"the attention {kind}")
    need(getattr(module, "num_heads", 0) * module.head_dim == row["width"], "heads that are not as wide together as the tokens")
    need(getattr(module, "gate", None) is None, "a gate on attention")
    row["heads"] = module.num_heads
    if module.qkv is not None:
        need(module.qkv.weight.shape[0] == 3 * row["width"], "fewer heads of keys than of queries")
        parts = {"all"} if module.qkv.bias is not None else {"no_key"} if getattr(module, "q_bias", None) is not None else {"none"}
    else:
        q, k, v = (p.bias is not None for p in (module.q_proj, module.k_proj, module.v_proj))
        need(q == v, "biases of queries alone"); parts = {"all" if k else "no_key" if q else "none"}
    row["qkv_bias"] = parts.pop()
    if module.qkv is None: row["separate_qkv"] = True  # only affects the names of tensors
    need(module.proj.bias is not None, "attention without a bias at its end")
    if not is_identity(module.q_norm):
        need(norm_eps(module.q_norm) == row["norm_eps"], "a norm of queries with an epsilon of its own"); row["qk_norm"] = True
    if not is_identity(getattr(module, "norm", None)):
        norm_eps(module.norm); row["attention_norm"] = True


def rotary(model, row):
    rope = getattr(model, "rope", None)
    if rope is None: return
    kind = type(rope).__name__; out = {}
    if kind == "RotaryEmbeddingDinoV3":
        need(rope.temperature is not None and rope.normalize_coords == "separate" and rope.grid_indexing == "ij" and not rope.grid_offset, "other coordinates of DINOv3's rotary positions")
        out = {"base": rope.temperature, "coordinates": "centered"}
        for ours, theirs in (("shift", "shift_coords"), ("jitter", "jitter_coords"), ("rescale", "rescale_coords")):
            if getattr(rope, theirs, None) is not None: out[ours] = getattr(rope, theirs)
    elif kind == "RotaryEmbeddingCat":
        need(not rope.in_pixels and getattr(rope, "grid_type", None) in (None, "index"), "rotary positions by pixels")
        out = {"base": rope.temperature, "offset": rope.grid_offset, "order": "columns_first" if rope.grid_indexing == "xy" else "rows_first"}
        if rope.ref_feat_shape is not None: out["reference"] = list(rope.ref_feat_shape)
    else:
        raise Refused(f"the rotary positions {kind}")
    if getattr(rope, "rotate_half", False): out["pairs"] = "halves"
    row["rotary"] = out


def pooling(model, row):
    row["pool"] = model.global_pool or "none"
    need(row["pool"] in ("token", "avg", "map", "none"), f"the pooling {row['pool']}")
    need(not getattr(model, "pool_include_prefix", False), "a mean that takes the class token in")
    if model.attn_pool is not None:
        pool = model.attn_pool
        need(type(pool).__name__ == "AttentionPoolLatent" and pool.latent_len == 1 and pool.pool == "token" and pool.pos_embed is None and is_identity(pool.q_norm), "an attention pool of another kind")
        need(pool.mlp is not None and pool.out_features == row["width"] and pool.q.out_features == row["width"] and pool.q.bias is not None, "an attention pool of another width or without an MLP")
        eps = norm_eps(pool.norm)
        row["map"] = {"heads": pool.num_heads, "mlp_hidden": pool.mlp.fc1.out_features, "activation": activation(pool.mlp.act), "norm_eps": eps}
        row["map_sees_prefix"] = type(model).__name__ == "Eva" or model.num_prefix_tokens == 0
        alone = model.num_prefix_tokens == 0 or (row["map_sees_prefix"] and model.num_prefix_tokens == 1) or (not row["map_sees_prefix"] and not row["class_token"])
        need(alone, "an attention pool over patches and registers")
    norm, after = not is_identity(model.norm), not is_identity(model.fc_norm)
    need(not (norm and after), "a norm before and one behind pooling")
    for module in (model.norm, model.fc_norm):
        if not is_identity(module): need(norm_eps(module) == row["norm_eps"], "a last norm with an epsilon of its own")
    row["final_norm"] = "tokens" if norm else "pooled" if after else "none"


def patches(model, row):
    patch = model.patch_embed; kind = type(patch).__name__
    stem = STEMS.get(type(getattr(patch, "backbone", None)).__name__)
    need(kind == "PatchEmbed" or (kind == "HybridEmbed" and stem), f"the patches {kind}")
    if kind == "HybridEmbed": row["stem"] = stem
    if stem == "vitamin":
        stages = patch.backbone.stages; row["stem_widths"] = [stage[-1].out_chs for stage in stages]
        need([len(stage) for stage in stages] == [2, 4] and patch.backbone.stem.out_chs == row["stem_widths"][0], "a stem of other stages")
    need(is_identity(getattr(patch, "norm", None)), "a norm of patches")
    row["image_size"] = list(patch.img_size); row["patch_size"] = [i // g for i, g in zip(patch.img_size, patch.grid_size)]
    if kind == "PatchEmbed": row["patch_bias"] = patch.proj.bias is not None
    before_blocks(model, model, row)
    if model.pos_embed is None:
        row["position_embedding"] = "none"
    else:
        prefix = model.pos_embed.shape[1] - patch.num_patches
        row["prefix_positions"] = "none" if prefix == 0 else "all" if prefix == model.num_prefix_tokens and row["registers"] else "class_token"
        need(prefix in (0, model.num_prefix_tokens) or (prefix == 1 and row["class_token"]), "positions of some of the first tokens")


def before_blocks(tokens, model, row):
    row["class_token"] = tokens.cls_token is not None
    row["registers"] = 0 if tokens.reg_token is None else tokens.reg_token.shape[1]
    row["pre_norm"] = not is_identity(model.norm_pre)
    if row["pre_norm"]: need(norm_eps(model.norm_pre) == row["norm_eps"], "a first norm with an epsilon of its own")


def naflex_patches(model, row):
    """A NaFlexVit has linear patches, and positions of a square, which it resizes to the grid of each image."""
    e = model.embeds
    need(e.is_linear and e.channels_last and e.norm_input is None and is_identity(e.norm) and e.patch_interpolator is None, "patches of another kind")
    need(e.pos_embed_type == "learned", f"{e.pos_embed_type} positions of patches")
    need(not e.pos_embed_ar_preserving and not e.pos_embed_align_corners and e.pos_embed_antialias, "positions that are resized in another way")
    row |= {"naflex": True, "image_size": [g * p for g, p in zip(e.pos_embed_grid_size, e.patch_size)], "patch_size": list(e.patch_size),
            "patch_bias": e.proj.bias is not None, "prefix_positions": "none",
            "position_resampling": {"bilinear": "bilinear", "bicubic": "antialiased"}[e.pos_embed_interp_mode]}
    before_blocks(e, model, row)


def transformer(model):
    block = type(model.blocks[0]).__name__
    need(block in ("Block", "EvaBlock", "EvaBlockPostNorm"), f"the block {block}")
    row = {"width": model.embed_dim, "layers": len(model.blocks), "norm_eps": norm_eps(model.blocks[0].norm1)}
    if block == "EvaBlockPostNorm": row["block_norm"] = "on_updates"
    (naflex_patches if hasattr(model, "embeds") else patches)(model, row)
    block = model.blocks[0]
    scales = [getattr(block, n, None) for n in ("ls1", "ls2", "gamma_1", "gamma_2")]
    there = [s for s in scales if not is_identity(s)]
    need(len(there) in (0, 2), "a layer scale of attention alone")
    if there: row["layer_scale"] = 1.0
    if there and not hasattr(block, "ls1"): row["gamma_names"] = True
    attention(block.attn, row); mlp(block.mlp, row)
    need(len({str(b) for b in model.blocks}) == 1 or all(type(b) is type(block) for b in model.blocks), "blocks of several kinds")
    rotary(model, row); pooling(model, row)
    return row


def convnext(model):
    stem, blocks = model.stem, [stage.blocks for stage in model.stages]; block = blocks[0][0]
    kinds = [type(m).__name__ for m in stem]
    norms = [m for m in model.modules() if "Norm" in type(m).__name__ and "Response" not in type(m).__name__ and not list(m.children())]
    need(all(isinstance(m, nn.LayerNorm) and m.bias is not None for m in norms), "another norm than LayerNorm")
    need(len({m.eps for m in norms}) == 1, "norms with several epsilons")
    need(is_identity(getattr(model.head, "pre_logits", None)) or not len(model.head.pre_logits), "a hidden layer before the classifier")
    s = {"layers": [len(b) for b in blocks], "widths": [b[0].conv_dw.out_channels for b in blocks], "kernel_sizes": [b[0].conv_dw.kernel_size[0] for b in blocks],
         "norm_eps": norms[0].eps, "activation": activation(block.mlp.act), "response_norm": type(block.mlp).__name__ == "GlobalResponseNormMlp",
         "conv_mlp": isinstance(block.mlp.fc1, nn.Conv2d), "conv_bias": block.conv_dw.bias is not None, "norm_first": not is_identity(model.norm_pre),
         "layer_scale_init": None if block.gamma is None else 1e-6}
    if len(kinds) == 2: s |= {"stem": "patch", "patch_size": stem[0].stride[0]}
    elif len(kinds) == 4: s["stem"] = "overlap_act"
    else: s["stem"] = "overlap" if stem[0].out_channels == stem[1].out_channels else "overlap_tiered"
    need(is_identity(model.stages[0].downsample), "a first stage that makes the map smaller")
    need(block.mlp.fc1.out_features == 4 * block.conv_dw.out_channels if not s["conv_mlp"] else block.mlp.fc1.out_channels == 4 * block.conv_dw.out_channels, "MLPs of another width")
    return {"encoder": "convnext", "settings": s}


def resnet(model):
    block = model.layer1[0]; kind = type(block).__name__
    need(kind in ("Bottleneck", "BasicBlock"), f"the block {kind}")
    need(is_identity(block.se), "squeeze and excitation")
    need(is_identity(getattr(block, "aa", None)) and isinstance(model.maxpool, nn.MaxPool2d), "anti-aliased strides")
    need(all(type(m) is nn.BatchNorm2d or "Norm" not in type(m).__name__ for m in model.modules()), "another norm than BatchNorm")
    need(type(model.act1) is nn.ReLU, "another activation than ReLU")
    bottleneck = kind == "Bottleneck"; conv = block.conv2 if bottleneck else block.conv1
    s = {"layers": [len(getattr(model, f"layer{i}")) for i in range(1, 5)], "block": "bottleneck" if bottleneck else "basic"}
    if bottleneck: s |= {"groups": conv.groups, "base_width": conv.out_channels // conv.groups}
    if isinstance(model.conv1, nn.Conv2d):
        need(model.conv1.kernel_size == (7, 7) and model.conv1.out_channels == 64, "a stem of another kind")
    else:
        first, second, third = (m for m in model.conv1 if isinstance(m, nn.Conv2d))
        need(third.out_channels == 64, "a stem of another width")
        s |= {"stem": "deep" if first.out_channels == second.out_channels else "deep_tiered", "stem_width": second.out_channels}
    s["mean_downsample"] = any(isinstance(m, nn.AvgPool2d) for m in model.layer2[0].downsample)
    need(model.layer4[0].downsample[-1].num_features == (2048 if bottleneck else 512), "stages of other widths")
    strides = [getattr(model, f"layer{i}")[0] for i in (2, 3, 4)]
    need(all((b.conv2 if bottleneck else b.conv1).stride == (2, 2) for b in strides), "other strides")
    return {"encoder": "timm_resnet", "settings": s}


def fastvit(model):
    stages, blocks = model.stages, [stage.blocks for stage in model.stages]
    attention = [type(b[0]).__name__ == "AttentionBlock" for b in blocks]; squeezed = [i > 0 and not is_identity(s.downsample.proj[0].se) for i, s in enumerate(stages)]
    last = lambda of: sum(of) if of == sorted(of) else -1
    need(last(attention) >= 0 and last(squeezed) >= 0, "stages in another order")
    need([not is_identity(s.pos_emb) for s in stages] == attention, "positions in other stages")
    widths = [b[0].mlp.fc1.in_channels for b in blocks]
    ratios = {b[0].mlp.fc1.out_channels / w for b, w in zip(blocks, widths)}
    need(len(ratios) == 1 and is_identity(stages[0].downsample) and not any(is_identity(s.downsample) for s in stages[1:]), "stages of another kind")
    norms = {type(b[0].norm).__name__ for b, a in zip(blocks, attention) if a}
    need(model.num_features == 2 * widths[-1] and norms <= {"BatchNorm2d", "LayerNorm2d"}, "another last convolution or norm")
    s = {"layers": [len(b) for b in blocks], "widths": widths, "mlp_ratio": ratios.pop(), "attention_stages": last(attention), "squeezed_stages": last(squeezed),
         "norm": "layer" if "LayerNorm2d" in norms else "batch", "stem_scale": model.stem[0].conv_scale is not None,
         "downsample_activation": not is_identity(stages[1].downsample.proj[0].act)}
    return {"encoder": "fastvit", "settings": s}


def row_of(name):
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = timm.create_model(name, num_classes=0)
    kind = type(model).__name__
    need(kind != "VisionTransformerDistilled", "a token of distillation")
    makers = {"VisionTransformer": transformer, "Eva": transformer, "NaFlexVit": transformer, "ConvNeXt": convnext, "ResNet": resnet, "FastVit": fastvit}
    need(kind in makers, LACKING.get(kind, f"the class {kind}"))
    row = makers[kind](model); cfg = model.pretrained_cfg
    if "encoder" in row: row["image_size"] = list(cfg["input_size"][1:])
    for ours, theirs in (("mean", "mean"), ("std", "std"), ("interpolation", "interpolation"), ("crop_pct", "crop_pct"), ("crop_mode", "crop_mode")):
        if cfg.get(theirs) is not None: row[ours] = cfg[theirs]
    return row


def relative_error(name, depth):
    """Returns the relative error of tessera-embed's features of a noise image against timm's, with no parameter at its initial value."""
    from PIL import Image
    from safetensors.torch import load_file
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = timm.create_model(name, num_classes=0, **depth).eval()
        for key, value in model.state_dict().items():
            if "running_var" in key: value.uniform_(0.5, 1.5)
            elif "running_mean" in key: value.normal_(0, 0.1)
            elif value.is_floating_point() and not key.endswith("periods"): value.add_(torch.randn_like(value), alpha=0.05 * float(value.abs().max()) + 0.01)
        timm.models.save_for_hf(model, f"{folder}/model", model_args=depth, safe_serialization=True)
        cfg = model.pretrained_cfg; size = getattr(getattr(model, "patch_embed", None), "img_size", None) or cfg["input_size"][1:]
        pixels = torch.randint(0, 256, (*size, 3), dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(f"{folder}/noise.png")
        subprocess.run([ROOT / "build/bin/tessera-embed", "--raw", "--checkpoint", f"{folder}/model", "--images", f"{folder}/noise.png", "--out", f"{folder}/o.safetensors"], check=True, capture_output=True)
        x = (pixels.permute(2, 0, 1) / 255 - torch.tensor(cfg["mean"]).view(3, 1, 1)) / torch.tensor(cfg["std"]).view(3, 1, 1)
        theirs = model.forward_head(model.forward_features(x[None]), pre_logits=True)
        ours = load_file(f"{folder}/o.safetensors")["image_embeddings"]
    return float((ours - theirs).norm() / theirs.norm())


def check(patterns):
    rows = json.load(open(ROOT / "configs/architectures/timm.json"))["models"]; good = 0
    names = [n for n, row in rows.items() if "refused" not in row and any(fnmatch.fnmatch(n, p) for p in patterns or ["*"])]
    for name in names:
        depth = {"convnext": {"depths": [1, 1, 1, 1]}, "timm_resnet": {"layers": [1, 1, 1, 1]},
                 "fastvit": {"layers": [1] * len(rows[name].get("settings", {}).get("layers", []))}}.get(rows[name].get("encoder"), {"depth": 1})
        try: error = relative_error(name, depth)
        except subprocess.CalledProcessError as failed: error = failed.stderr.decode().strip().splitlines()[-1]
        good += not isinstance(error, str) and error < 1e-4
        print(f"{name}: {error if isinstance(error, str) else f'{error:.1e}'}", flush=True)
    print(f"{good} of {len(names)} agree")
    sys.exit(good != len(names))


def main():
    if sys.argv[1:2] == ["--check"]: check(sys.argv[2:])
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "configs/architectures/timm.json"
    rows = {}
    for name in sorted(n for n in timm.list_models() if n.startswith(FAMILIES)):
        try: rows[name] = row_of(name)
        except Refused as reason: rows[name] = {"refused": f"our models lack {reason}"}
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(r, separators=(',', ':'))}" for n, r in rows.items())
    out.write_text(f'{{"timm": "{timm.__version__}",\n "models": {{\n{lines}\n }}}}\n')
    print(f"{out}: {len(rows)} models, {sum('refused' in r for r in rows.values())} refused")


if __name__ == "__main__": main()
