#!/usr/bin/env python3
"""Writes small models with random weights as folders in their libraries' published formats, to try SigLIP 2, PE-Core, DINOv3,
EVA-02 or CLIP in Tessera within minutes and without a download.

  python3 -m pip install torch torchvision transformers timm open_clip_torch tokenizers safetensors
  scripts/make_small_models.py                        # all of them into runs/small
  scripts/make_small_models.py OUT --only siglip2     # one of them

  siglip2      transformers  SiglipModel with a tokenizer.json like Gemma's
  naflex       transformers  Siglip2Model (NaFlex) with the same tokenizer; at most 48 patches per image
  clip         transformers  CLIPModel with a tokenizer.json like CLIP's
  dinov3       transformers  DINOv3ViTModel
  dinov3_timm  timm          vit_small_patch16_dinov3 with two blocks
  eva02        timm          eva02_tiny_patch14_224 with two blocks
  pe_core      OpenCLIP      vit_pe_core_tiny_patch16_384 with a small OpenCLIP text tower
  eva02_clip   OpenCLIP      eva02_tiny_patch14_224 with a small OpenCLIP text tower
  modern       OpenCLIP      a ViT with OpenCLIP's modern text tower (needs OpenCLIP's main branch, 4.2 or newer)

The image size is 64 pixels (eva02: 56); OpenCLIP builds timm's towers for their own size. The tokenizers are trained on the words of the
built-in shapes. The same seed gives the same weights. Exit code: 0; 77 if a Python package is missing.
"""
import argparse
import itertools
import json
import math
import pathlib
import sys

COLORS = "red orange yellow green cyan blue purple pink".split()
SHAPES = "circle square triangle star cross diamond ring heart hexagon moon".split()
WORDS = ("a an the of and with on in is at to there we see picture image scene showing small little medium large big left right above below "
         "under top bottom middle light gray dark background plain striped dotted checkered").split()
NORMALIZATIONS = {"half": [[0.5] * 3, [0.5] * 3], "imagenet": [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]],
                  "clip": [[0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]]}
SIDE = 64
BLOCKS = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def texts():
    return [f"a {size} {color} {shape} and the {shape} is {place} a {color} one" for size, place, color, shape in
            itertools.product(("small", "large"), ("left of", "right of", "above", "below"), COLORS, SHAPES)] + [" ".join(WORDS)] * 20


def moved(model):
    """Changes all parameters, because initial values such as 0 or 1 would hide a missing part."""
    import torch
    with torch.no_grad():
        for name, value in model.named_parameters():
            if not name.endswith(("logit_scale", "logit_bias")):
                value.add_(0.02 * torch.randn(value.shape))
    return model.eval()


def gemma_tokenizer():
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    pieces = [f" {word}" for text in texts() for word in text.split()]  # single words, so that BPE cannot merge a whole text into one piece
    tokenizer.train_from_iterator(pieces, trainers.BpeTrainer(vocab_size=600, show_progress=False,
                                                               special_tokens=special + [f"<0x{i:02X}>" for i in range(256)]))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>",
                                   unk_token="<unk>", model_max_length=64, padding_side="right")


def clip_tokenizer():
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast
    start, end = "<|startoftext|>", "<|endoftext|>"
    tokenizer = Tokenizer(models.BPE(unk_token=end, end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    words = Regex(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(words, "removed", invert=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts(), trainers.BpeTrainer(vocab_size=700, special_tokens=[start, end], end_of_word_suffix="</w>",
                                                               show_progress=False,
                                                               initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    ends = [(text, tokenizer.token_to_id(text)) for text in (end, start)]
    tokenizer.post_processor = processors.RobertaProcessing(*ends, trim_offsets=False, add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=start, eos_token=end, unk_token=end, pad_token=end,
                                   model_max_length=77)


def write_transformers(folder, model, processor, normalization, resample, tokenizer=None, **other):
    folder.mkdir(parents=True, exist_ok=True)
    moved(model).save_pretrained(folder)
    if tokenizer:
        tokenizer.save_pretrained(folder)
    mean, std = NORMALIZATIONS[normalization]
    settings = {"image_processor_type": processor, "do_resize": True, **(other or {"size": {"height": SIDE, "width": SIDE}}), "resample": resample,
                "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": mean, "image_std": std}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def siglip2(folder):
    from transformers import SiglipConfig, SiglipModel
    tokenizer = gemma_tokenizer()
    text = {**BLOCKS, "vocab_size": len(tokenizer), "intermediate_size": 256, "projection_size": 64, "max_position_embeddings": 64}
    config = SiglipConfig(text_config=text, vision_config={**BLOCKS, "intermediate_size": 256, "image_size": SIDE, "patch_size": 8})
    model = SiglipModel(config)
    model.logit_scale.data.fill_(math.log(10))  # the initial value of SigLIP's training
    model.logit_bias.data.fill_(-10)
    write_transformers(folder, model, "SiglipImageProcessor", "half", 2, tokenizer)


def naflex(folder):
    from transformers import Siglip2Config, Siglip2Model
    tokenizer = gemma_tokenizer()
    text = {**BLOCKS, "vocab_size": len(tokenizer), "intermediate_size": 256, "projection_size": 64, "max_position_embeddings": 64}
    model = Siglip2Model(Siglip2Config(text_config=text, vision_config={**BLOCKS, "intermediate_size": 256, "num_patches": 64, "patch_size": 8}))
    model.logit_scale.data.fill_(math.log(10))
    model.logit_bias.data.fill_(-10)
    write_transformers(folder, model, "Siglip2ImageProcessor", "half", 2, tokenizer, patch_size=8, max_num_patches=48)


def clip(folder):
    from transformers import CLIPConfig, CLIPModel
    tokenizer = clip_tokenizer()
    text = {**BLOCKS, "vocab_size": len(tokenizer), "intermediate_size": 256, "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id}
    config = CLIPConfig(text_config=text, vision_config={**BLOCKS, "intermediate_size": 256, "image_size": SIDE, "patch_size": 8},
                        projection_dim=64)
    write_transformers(folder, CLIPModel(config), "CLIPImageProcessor", "clip", 3, tokenizer)


def dinov3(folder):
    from transformers import DINOv3ViTConfig, DINOv3ViTModel
    config = DINOv3ViTConfig(**BLOCKS, intermediate_size=256, image_size=SIDE, patch_size=8, num_register_tokens=4)
    write_transformers(folder, DINOv3ViTModel(config), "DINOv3ViTImageProcessorFast", "imagenet", 2)


def write_timm(folder, name, side):
    import timm
    from timm.models import save_for_hf
    arguments = {"img_size": side, "depth": 2}
    model = moved(timm.create_model(name, num_classes=0, **arguments))
    save_for_hf(model, folder, model_config={"pretrained_cfg_overlay": {"input_size": [3, side, side]}}, model_args=arguments,
                safe_serialization=True)


def write_open_clip(folder, name, side, embed_dim, text=None, **vision):
    """name: timm's image tower; None: OpenCLIP's own."""
    import open_clip
    from safetensors.torch import save_file
    timm = {"timm_model_name": name, "timm_model_pretrained": False, "timm_proj": None} if name else {}
    config = {"embed_dim": embed_dim, "custom_text": True, "vision_cfg": {"image_size": side, **timm, **vision},
              "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 64, "heads": 4, "layers": 2, **(text or {})}}
    folder.mkdir(parents=True, exist_ok=True)
    named = folder / "small.json"  # create_model() finds an architecture by the name of such a file
    named.write_text(json.dumps(config))
    open_clip.add_model_config(named)
    model = moved(open_clip.create_model("small", pretrained=None))
    named.unlink()
    preprocess = open_clip.get_model_preprocess_cfg(model)
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": preprocess}, indent=2) + "\n")
    save_file({key: value.contiguous().clone() for key, value in model.state_dict().items()}, folder / "open_clip_model.safetensors")


def modern(folder):
    import open_clip
    if not hasattr(open_clip.transformer, "ModernTextTransformer"):
        raise ImportError(f"open_clip {open_clip.__version__} has no modern text tower: it needs OpenCLIP's main branch")
    tokenizer = gemma_tokenizer()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    text = {"text_arch": "modern", "vocab_size": len(tokenizer), "mlp_ratio": 2.6666667, "pad_id": 0, "bos_id": 2, "eos_id": 1, "pool_type": "map",
            "attention_mode": "bidirectional", "pos_embed": "rope", "mlp_type": "swiglu", "norm_type": "rmsnorm", "norm_eps": 1e-5, "qk_norm": True,
            "attn_gated": True, "hf_tokenizer_name": "in-this-folder"}
    write_open_clip(folder, None, SIDE, 48, text, patch_size=8, width=64, layers=2, head_width=16)


MODELS = {"siglip2": siglip2, "naflex": naflex, "modern": modern, "clip": clip, "dinov3": dinov3,
          "dinov3_timm": lambda folder: write_timm(folder, "vit_small_patch16_dinov3", SIDE),
          "eva02": lambda folder: write_timm(folder, "eva02_tiny_patch14_224", 56),
          "pe_core": lambda folder: write_open_clip(folder, "vit_pe_core_tiny_patch16_384", 384, 512),
          "eva02_clip": lambda folder: write_open_clip(folder, "eva02_tiny_patch14_224", 224, 64, timm_pool="token")}


def be_quiet():
    """Silences transformers' and OpenCLIP's warnings about untrained models."""
    import logging
    import transformers
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()


def write(folder, name, seed=0):
    """Writes one model to the folder."""
    import torch
    torch.manual_seed(seed)
    MODELS[name](pathlib.Path(folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=pathlib.Path, default=pathlib.Path("runs/small"))
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="MODEL")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    try:
        be_quiet()
        for name in arguments.only:
            write(arguments.out / name, name, arguments.seed)
            print(f"wrote {arguments.out / name}", flush=True)
    except ImportError as error:
        print(f"make_small_models: skipped, {error}")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
