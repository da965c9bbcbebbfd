#!/usr/bin/env python3
"""Writes the small models and tokenizers in this folder: random weights in the file formats of Hugging Face's libraries, and the
outputs that those libraries compute with them. Needs torch, transformers, open_clip_torch, tokenizers and safetensors; run it in this
folder. modern_texts() needs OpenCLIP's main branch (4.2 or newer).

    make.py [FUNCTION ...] [--seed N]     functions: towers, lone_towers, text_towers, modern_texts, lone_texts, naflex, tokenizers, older_tokenizers, tokenizer_classes
"""
import argparse, json, pathlib, random, shutil
import torch, transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers, Regex

TEXTS = ["a photo of a cat", "Two dogs running on the beach, in 1987!", "don't panic: 42 balloons & a café", "TREES \t and\nsky  ", "",
         "Ünïcödé ΣΑΣ ЖИЗНЬ 日本語のテキスト 🐈‍⬛ İstanbul", "e\u0301 \u00a0nbsp\u3000wide <eos> <|endoftext|> x", "it's we'll they'd I'm you've"]


def perturbed(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for v in model.parameters(): v.add_(0.05 * torch.randn(v.shape, generator=g))
    return model.eval()


def vector(output):
    """Returns the output that Tessera uses as an image's embedding: the projected embedding if there is one, else the pooled output,
    else the mean of the tokens."""
    if torch.is_tensor(output): return output
    if "image_embeds" in output: return output.image_embeds
    if output.pooler_output is None: return output.last_hidden_state.mean(1)
    return output.pooler_output


def write(name, model, ids=None, image=None, other=None):
    """other: another size, (height, width), for which the model resizes its positions."""
    folder = pathlib.Path(name); shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    config = getattr(model.config, "vision_config", model.config)
    encode = image or (lambda model, x: vector(model.get_image_features(pixel_values=x) if ids is not None else model(pixel_values=x)))
    x = torch.randn(2, 3, config.image_size, config.image_size, generator=torch.Generator().manual_seed(5))
    out = {"pixels": x}
    if other: out["other_pixels"] = torch.randn(1, 3, *other, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        out["image"] = encode(model, x)
        if other: out["other_image"] = encode(model, out["other_pixels"])
        if ids is not None:
            text = model.get_text_features(input_ids=ids)
            out |= {"ids": ids, "text": text if torch.is_tensor(text) else text.pooler_output}
    save_file({k: v.contiguous() for k, v in out.items()}, folder / "expected.safetensors")
    print(name, sum(f.stat().st_size for f in folder.iterdir()))


def towers():
    from transformers import (CLIPConfig, CLIPModel, Dinov2WithRegistersConfig, Dinov2WithRegistersModel, DINOv3ViTConfig,
                              DINOv3ViTModel, SiglipConfig, SiglipModel)
    g = torch.Generator().manual_seed(1); small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
    torch.manual_seed(0)
    write("dinov3", perturbed(DINOv3ViTModel(DINOv3ViTConfig(**small, intermediate_size=48, image_size=32, patch_size=16, num_register_tokens=2, use_gated_mlp=True, hidden_act="silu")), 1))
    write("dinov2_registers", perturbed(Dinov2WithRegistersModel(Dinov2WithRegistersConfig(**small, image_size=28, patch_size=14, mlp_ratio=2, num_register_tokens=3, use_swiglu_ffn=True)), 2), other=(28, 42))
    text = dict(small, vocab_size=40, intermediate_size=48, max_position_embeddings=8)
    picture = dict(small, intermediate_size=40, image_size=16, patch_size=8)
    write("siglip", perturbed(SiglipModel(SiglipConfig(text_config=dict(text, projection_size=32), vision_config=picture)), 3), torch.randint(0, 40, (3, 8), generator=g))
    ids = torch.randint(3, 39, (3, 8), generator=g); ids[:, -1] = 39
    write("clip", perturbed(CLIPModel(CLIPConfig(text_config=dict(text, eos_token_id=39, bos_token_id=1), vision_config=picture, projection_dim=24)), 4), ids)


def lone_towers():
    """Writes models with only one tower, and models whose other parts Tessera ignores."""
    from transformers import (BertConfig, BertModel, CLIPVisionConfig, CLIPVisionModelWithProjection, Dinov2Config, Dinov2ForImageClassification,
                              DINOv3ViTConfig, DINOv3ViTModel, MetaClip2Config, MetaClip2Model, SiglipVisionConfig, SiglipVisionModel, ViTConfig, ViTModel)
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2); picture = dict(small, intermediate_size=40, image_size=16, patch_size=8)
    torch.manual_seed(0); g = torch.Generator().manual_seed(9)
    write("clip_vision", perturbed(CLIPVisionModelWithProjection(CLIPVisionConfig(**picture, projection_dim=24, hidden_act="gelu_fast")), 11))
    write("siglip_vision", perturbed(SiglipVisionModel(SiglipVisionConfig(**picture)), 12))
    write("siglip_no_head", perturbed(SiglipVisionModel(SiglipVisionConfig(**picture, vision_use_head=False)), 13))
    write("dinov2_classifier", perturbed(Dinov2ForImageClassification(Dinov2Config(**small, image_size=28, patch_size=14, mlp_ratio=2, qkv_bias=False, num_labels=3)), 14),
          image=lambda model, x: model.dinov2(pixel_values=x).pooler_output, other=(28, 42))
    write("dinov3_biases", perturbed(DINOv3ViTModel(DINOv3ViTConfig(**picture, query_bias=False, key_bias=True, proj_bias=False, mlp_bias=False)), 15))
    write("vit", perturbed(ViTModel(ViTConfig(**picture)), 16), image=lambda model, x: model(pixel_values=x).last_hidden_state[:, 0])
    ids = torch.randint(3, 39, (3, 8), generator=g); ids[:, 5] = 2; ids[1, 3] = 2
    text = dict(small, vocab_size=40, intermediate_size=48, max_position_embeddings=8, eos_token_id=2)
    write("metaclip_2", perturbed(MetaClip2Model(MetaClip2Config(text_config=text, vision_config=picture, projection_dim=24)), 17), ids)
    folder = pathlib.Path("bert"); shutil.rmtree(folder, ignore_errors=True)
    bert = perturbed(BertModel(BertConfig(**small, intermediate_size=48, vocab_size=40, max_position_embeddings=12)), 18); bert.save_pretrained(folder)
    with torch.no_grad(): save_file({"ids": ids, "text": bert(input_ids=ids).last_hidden_state[:, 0].contiguous()}, folder / "expected.safetensors")


def lone_text(name, seed, model, pad, pool=lambda tokens, mask: (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)):
    """Writes a text encoder of transformers, and the vectors that `pool` makes of its tokens."""
    folder = pathlib.Path(name); shutil.rmtree(folder, ignore_errors=True)
    model = perturbed(model, seed); model.save_pretrained(folder)
    g = torch.Generator().manual_seed(seed); ids = torch.randint(4, 40, (3, 12), generator=g); mask = torch.arange(12) < torch.tensor([12, 5, 2])[:, None]; ids[~mask] = pad
    with torch.no_grad(): tokens = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    save_file({"ids": ids, "mask": mask, "text": pool(tokens, mask.float()).contiguous()}, folder / "expected.safetensors")
    print(name, sum(f.stat().st_size for f in folder.iterdir()))


def lone_texts(seed=0):
    from transformers import Gemma3TextConfig, Gemma3TextModel, ModernBertConfig, ModernBertModel, MT5Config, MT5EncoderModel
    small = dict(hidden_size=32, num_attention_heads=2, intermediate_size=24, vocab_size=40, attn_implementation="eager"); torch.manual_seed(seed)
    lone_text("modernbert", 21 + seed, ModernBertModel(ModernBertConfig(**small, num_hidden_layers=4, local_attention=6, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)), 0)
    lone_text("mt5", 22 + seed, MT5EncoderModel(MT5Config(d_model=32, d_kv=12, d_ff=24, num_layers=2, num_heads=3, vocab_size=40, relative_attention_num_buckets=8, relative_attention_max_distance=6)), 0)
    lone_text("gemma", 23 + seed, Gemma3TextModel(Gemma3TextConfig(**small, num_hidden_layers=3, num_key_value_heads=1, head_dim=12, query_pre_attn_scalar=20, sliding_window=6, sliding_window_pattern=3, use_bidirectional_attention=True)), 0)


def naflex(seed=0):
    """Writes a NaFlex model of SigLIP 2, and its embeddings of images of several shapes and of the same images with less padding."""
    from transformers import Siglip2Config, Siglip2Model
    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2); torch.manual_seed(seed); g = torch.Generator().manual_seed(31 + seed)
    config = Siglip2Config(text_config=dict(small, vocab_size=40, intermediate_size=48, max_position_embeddings=8, projection_size=32), vision_config=dict(small, intermediate_size=40, patch_size=4, num_patches=16))
    config._attn_implementation = "eager"
    model = perturbed(Siglip2Model(config), 31 + seed); folder = pathlib.Path("siglip2"); shutil.rmtree(folder, ignore_errors=True); model.save_pretrained(folder)
    json.dump({"image_processor_type": "Siglip2ImageProcessor", "do_resize": True, "resample": 2, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
               "patch_size": 4, "max_num_patches": 24}, open(folder / "preprocessor_config.json", "w"))
    grids = torch.tensor([[4, 4], [3, 7], [6, 2], [1, 5]]); mask = torch.arange(24) < grids.prod(1, keepdim=True); patches = torch.randn(4, 24, 48, generator=g); ids = torch.randint(0, 40, (3, 8), generator=g)
    with torch.no_grad():
        image = vector(model.get_image_features(pixel_values=patches, pixel_attention_mask=mask.long(), spatial_shapes=grids)); text = vector(model.get_text_features(input_ids=ids))
    save_file({"patches": patches, "grids": grids, "mask": mask, "image": image.contiguous(), "ids": ids, "text": text.contiguous()}, folder / "expected.safetensors")
    print("siglip2", sum(f.stat().st_size for f in folder.iterdir()))


def open_clip_text(name, seed, tower=None, **text):
    """Writes an OpenCLIP folder that uses the transformers encoder `tower`, if there is one, as text tower."""
    import open_clip
    from unittest import mock
    folder = pathlib.Path(name); shutil.rmtree(folder, ignore_errors=True); (folder / "configs").mkdir(parents=True)
    names = {"hf_model_name": "somebody/some-encoder", "hf_tokenizer_name": "somebody/some-encoder"} if tower else {}
    config = {"embed_dim": 24, "custom_text": True, "vision_cfg": {"image_size": 16, "patch_size": 8, "width": 16, "layers": 1, "head_width": 8},
              "text_cfg": {**names, "context_length": 8, **text}}
    json.dump(config, open(folder / "configs/small.json", "w")); open_clip.add_model_config(folder / "configs"); torch.manual_seed(seed)
    settings = transformers.AutoConfig.for_model(tower["model_type"], **{k: v for k, v in tower.items() if k != "model_type"}) if tower else None
    with mock.patch.object(transformers.AutoConfig, "from_pretrained", lambda *_, **__: settings):
        model = perturbed(open_clip.create_model("small", pretrained=None, pretrained_hf=False), seed)
    shutil.rmtree(folder / "configs")
    preprocess = {"mean": [0.5] * 3, "std": [0.5] * 3, "size": 16}
    json.dump({"model_cfg": config, "preprocess_cfg": preprocess}, open(folder / "open_clip_config.json", "w"))
    if tower: json.dump(tower, open(folder / "config.json", "w"))
    save_file({k: v.contiguous().clone() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    g = torch.Generator().manual_seed(seed); ids = torch.randint(4, 40, (3, 8), generator=g); lengths = torch.tensor([8, 5, 2])
    mask = torch.arange(8) < lengths[:, None]; ids[~mask] = tower["pad_token_id"] if tower else text["pad_id"]
    if "eos_id" in text: ids[torch.arange(3), lengths - 1] = text["eos_id"]
    x = torch.randn(2, 3, 16, 16, generator=g)
    with torch.no_grad(): out = {"pixels": x, "image": model.encode_image(x), "ids": ids, "mask": mask, "text": model.encode_text(ids)}
    save_file({k: v.contiguous() for k, v in out.items()}, folder / "expected.safetensors")
    print(name, sum(f.stat().st_size for f in folder.iterdir()))


def text_towers():
    bert = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, max_position_embeddings=12, vocab_size=40)
    open_clip_text("open_clip_bert", 5, dict(bert, model_type="bert", pad_token_id=0, type_vocab_size=2), hf_pooler_type="cls_last_hidden_state_pooler", hf_proj_type="mlp")
    open_clip_text("open_clip_roberta", 6, dict(bert, model_type="xlm-roberta", pad_token_id=1, type_vocab_size=1), hf_pooler_type="mean_pooler", hf_proj_type="linear")
    m2m = dict(model_type="m2m_100", d_model=16, encoder_layers=2, encoder_attention_heads=2, encoder_ffn_dim=24, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=8, vocab_size=40, pad_token_id=1)
    open_clip_text("open_clip_nllb", 7, m2m, hf_pooler_type="cls_pooler", hf_proj_type="linear")
    mt5 = dict(model_type="mt5", d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=2, vocab_size=40, pad_token_id=0, relative_attention_num_buckets=8, relative_attention_max_distance=5)
    open_clip_text("open_clip_mt5", 8, mt5, hf_pooler_type="mean_pooler", hf_proj_type="mlp")


def modern_texts(seed=0):
    """OpenCLIP's modern text tower with all of its options that Tessera reads, as its JSON files write them, and ModernBERT in OpenCLIP."""
    modern = dict(text_arch="modern", variable_text=True, vocab_size=44, width=32, heads=4, layers=2, mlp_ratio=2.6666667, pad_id=42, bos_id=43, eos_id=41, tokenizer_type="tiktoken", tiktoken_name="r50k_base",
                  pos_embed="rope", mlp_type="swiglu", norm_type="rmsnorm", attn_gated=True)
    open_clip_text("open_clip_modern", 24 + seed, pool_type="eos", attention_mode="causal", norm_eps=1e-6, qk_norm=False, **modern)
    open_clip_text("open_clip_modern_map", 25 + seed, pool_type="map", attention_mode="bidirectional", norm_eps=1e-5, qk_norm=True, attention_bias=True, mlp_bias=True, norm_placement="sandwich", ls_init_value=0.1, pre_norm=True, **modern)
    open_clip_text("open_clip_modern_plain", 26 + seed, pool_type="mean", attention_mode="bidirectional", norm_eps=1e-5, gate_bias=True, proj_bias=True,
                   **{**modern, "pos_embed": "none", "mlp_type": "mlp", "norm_type": "layernorm"})
    bert = dict(model_type="modernbert", hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=24, vocab_size=40, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, local_attention=4)
    open_clip_text("open_clip_modernbert", 27 + seed, bert, hf_pooler_type="cls_pooler", hf_proj_type="linear", pad_id=0, variable_text=True, hf_model_config={"max_position_embeddings": 8})


def corpus():
    words = " ".join(TEXTS).lower().split() + "red green blue left right small large man woman street tree water bird bus train".split()
    r = random.Random(0)
    return [" ".join(r.choices(words, k=9)) for _ in range(300)]


def tokenizers():
    folder = pathlib.Path("tokenizers"); folder.mkdir(exist_ok=True); cases = {}
    gemma = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    gemma.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "\u2581")])
    gemma.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    gemma.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    gemma.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=420, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{i:02X}>" for i in range(256)]))
    gemma.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    clip = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    clip.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    clip.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    clip.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    clip.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=700, special_tokens=["<|startoftext|>", "<|endoftext|>"], initial_alphabet=sorted(alphabet), end_of_word_suffix="</w>"))
    ends = [(t, clip.token_to_id(t)) for t in ("<|endoftext|>", "<|startoftext|>")]
    clip.post_processor = processors.RobertaProcessing(ends[0], ends[1], trim_offsets=False, add_prefix_space=False)
    gpt2 = Tokenizer(models.BPE())
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True); gpt2.decoder = decoders.ByteLevel()
    gpt2.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=420, initial_alphabet=sorted(alphabet)))
    llama = Tokenizer(models.BPE(ignore_merges=True)); llama.decoder = decoders.ByteLevel()
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    llama.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    llama.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=420, initial_alphabet=sorted(alphabet)))
    wordpiece = Tokenizer(models.WordPiece(unk_token="[UNK]")); wordpiece.normalizer = normalizers.BertNormalizer()
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer(); wordpiece.decoder = decoders.WordPiece()
    wordpiece.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    wordpiece.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    unigram = Tokenizer(models.Unigram()); unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]); unigram.decoder = decoders.Metaspace()
    unigram.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=260, special_tokens=special, unk_token="<unk>"))
    unigram.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    wordlevel = Tokenizer(models.WordLevel(unk_token="<unk>")); wordlevel.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    wordlevel.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(True), pre_tokenizers.Punctuation("merged_with_previous")])
    wordlevel.train_from_iterator(corpus(), trainers.WordLevelTrainer(vocab_size=300, special_tokens=special))
    added = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##")); added.normalizer = normalizers.Lowercase(); added.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    added.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=260, special_tokens=special, continuing_subword_prefix="##")); added.decoder = decoders.WordPiece()
    from tokenizers import AddedToken
    added.add_tokens([AddedToken("on", single_word=True), AddedToken("TREES", normalized=True, rstrip=True), AddedToken("<|endoftext|>", normalized=False, special=True, lstrip=True, rstrip=True), AddedToken("\u00e9", normalized=False)])
    added.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 0))
    kinds = (("gemma", gemma), ("clip", clip), ("gpt2", gpt2), ("llama", llama), ("wordpiece", wordpiece), ("unigram", unigram), ("wordlevel", wordlevel), ("added", added))
    for name, tokenizer in kinds:
        tokenizer.save(str(folder / f"{name}.json"), pretty=False)
        cases[name] = [tokenizer.encode(t).ids for t in TEXTS]
    json.dump({"texts": TEXTS, "ids": cases}, open(folder / "expected.json", "w"))


def sentence_pieces(path, **options):
    """Writes a small unigram model with only a few normalization rules, because the library's own rules take 240 kB."""
    import sentencepiece, tempfile
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write("".join(f"{ord(c):X}\t{ord(c) - 0xFEE0:X}\n" for c in "\uff21\uff22\uff41") + "FB01\t66 69\nA0\t20\n3000\t20\n9\t20\nA\t20\n65 301\tE9\n"); rules.flush()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_prefix=str(path.with_suffix("")), vocab_size=150, hard_vocab_limit=False, model_type="unigram",
                                                 normalization_rule_tsv=rules.name, minloglevel=2, num_threads=1, **options)
    path.with_suffix(".vocab").unlink()


def older_tokenizers():
    """Writes folders with the kinds of vocabulary files that tokenizer.json replaced, and the ids that transformers and OpenCLIP's
    wrapper compute from them."""
    import open_clip
    root = pathlib.Path("older_tokenizers"); shutil.rmtree(root, ignore_errors=True); out = {"texts": TEXTS, "ids": {}, "pad_id": {}}
    def folder(name, tokenizer_class, **config):
        (root / name).mkdir(parents=True); json.dump({"tokenizer_class": tokenizer_class, **config}, open(root / name / "tokenizer_config.json", "w")); return root / name
    def bytes_of(path, special):
        tokenizer = Tokenizer(models.BPE()); tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=400, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=special)); tokenizer.model.save(str(path))
    def words_of(path, size, **options):
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]")); tokenizer.normalizer = normalizers.BertNormalizer(**options); tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.train_from_iterator(corpus() + TEXTS, trainers.WordPieceTrainer(vocab_size=size, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])); tokenizer.model.save(str(path))
    bytes_of(folder("roberta", "RobertaTokenizer", pad_token="<pad>"), ["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    bytes_of(folder("gpt2", "GPT2Tokenizer", add_prefix_space=True, pad_token="<|endoftext|>"), ["<|endoftext|>"])
    words_of(folder("bert", "BertTokenizer", pad_token="[PAD]"), 230)
    words_of(folder("bert_cased", "BertTokenizer", do_lower_case=False, pad_token={"content": "[PAD]", "__type": "AddedToken"}), 230, lowercase=False)
    sentence_pieces(folder("xlm_roberta", "XLMRobertaTokenizer", pad_token="<pad>") / "sentencepiece.bpe.model")
    t5 = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    sentence_pieces(folder("t5", "T5Tokenizer", extra_ids=100, pad_token="<pad>") / "spiece.model", **t5)
    sentence_pieces(folder("siglip", "SiglipTokenizer", pad_token="</s>", model_max_length=64) / "spiece.model", **t5)
    for path in sorted(root.iterdir()):
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        out["ids"][path.name] = [tokenizer(text)["input_ids"] for text in TEXTS]; out["pad_id"][path.name] = tokenizer.pad_token_id
    clipa = open_clip.tokenizer.HFTokenizer(str(root / "bert"), context_length=8, strip_sep_token=True)
    out["ids"]["strip_sep_token"] = clipa(TEXTS).tolist()
    json.dump(out, open(root / "expected.json", "w"))
    print(root, sum(f.stat().st_size for f in root.rglob("*") if f.is_file()))


def tokenizer_classes():
    """Writes the ids that classes of transformers compute from the files of `tokenizers`, after changes to the files' parts. Each of these
    classes makes some parts itself."""
    texts = ["a photo of a cat", "Two Dogs running on the beach, in 1987!", "don't panic: 42 balloons & a caf\u00e9", "TREES \t and\nsky  ", "",
             "\u00dcn\u00efc\u00f6d\u00e9 \u03a3\u0391\u03a3 \u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \u0130stanbul", "e\u0301 \u00a0nbsp\u3000wide"]
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    cases = [("siglip2", "gemma", {"normalizer": spaces}, {"tokenizer_class": "Siglip2Tokenizer"}, {}),
             ("siglip2_of_model", "gemma", {"normalizer": spaces}, {"tokenizer_class": "GemmaTokenizer"}, {"model_type": "siglip2"}),
             ("siglip2_without_config", "gemma", {"normalizer": spaces}, {}, {"model_type": "siglip2"}),
             ("gemma", "gemma", {}, {"tokenizer_class": "GemmaTokenizerFast"}, {"model_type": "siglip"}),
             ("clip", "clip", {"normalizer": None, "post_processor": None}, {"tokenizer_class": "CLIPTokenizerFast", "do_lower_case": False}, {}),
             ("clip_of_model", "clip", {"normalizer": None}, {}, {"model_type": "clip"}),
             ("clip_without_class", "clip", {"normalizer": None}, {"tokenizer_class": "PreTrainedTokenizerFast"}, {"model_type": "clip"}),
             ("bert", "wordpiece", {"normalizer": None, "post_processor": None}, {"tokenizer_class": "BertTokenizer"}, {}),
             ("bert_cased", "wordpiece", {}, {"tokenizer_class": "BertTokenizerFast", "do_lower_case": False}, {}),
             ("bert_accents", "wordpiece", {}, {"tokenizer_class": "BertTokenizer", "strip_accents": False}, {}),
             ("bert_chinese", "wordpiece", {}, {"tokenizer_class": "BertTokenizer", "tokenize_chinese_chars": False}, {}),
             ("bert_of_model", "wordpiece", {}, {"do_lower_case": False}, {"model_type": "bert"}),
             ("distilbert", "wordpiece", {}, {"tokenizer_class": "DistilBertTokenizer", "do_lower_case": False}, {}),
             ("gpt2", "gpt2", {"normalizer": {"type": "Lowercase"}}, {"tokenizer_class": "GPT2Tokenizer"}, {}),
             ("gpt2_space", "gpt2", {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}},
              {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}, {}),
             ("xlm_roberta", "unigram", {"post_processor": None}, {"tokenizer_class": "XLMRobertaTokenizer"}, {}),
             ("xlm_roberta_space", "unigram", {}, {"tokenizer_class": "XLMRobertaTokenizer", "add_prefix_space": False}, {}),
             ("t5", "unigram", {"post_processor": None}, {"tokenizer_class": "T5Tokenizer"}, {})]
    out = {"texts": texts, "cases": {}}
    for name, file, changes, config, model in cases:
        folder = pathlib.Path("made_by_class"); shutil.rmtree(folder, ignore_errors=True); folder.mkdir()
        for part, content in (("tokenizer", {**json.load(open(f"tokenizers/{file}.json")), **changes}), ("tokenizer_config", config), ("config", model)):
            if content: json.dump(content, open(folder / f"{part}.json", "w"))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        out["cases"][name] = {"file": file, "changes": changes, "tokenizer_config": config, "config": model, "pad_id": tokenizer.pad_token_id,
                              "ids": [tokenizer(text)["input_ids"] for text in texts]}
        shutil.rmtree(folder)
    json.dump(out, open("tokenizer_classes.json", "w"))


if __name__ == "__main__":
    seeded = {"modern_texts": modern_texts, "lone_texts": lone_texts, "naflex": naflex}
    plain = {f.__name__: f for f in (towers, lone_towers, text_towers, tokenizers, older_tokenizers, tokenizer_classes)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", default=[*plain, *seeded], metavar="FUNCTION"); parser.add_argument("--seed", type=int, default=0, help="of modern_texts, lone_texts and naflex")
    arguments = parser.parse_args()
    for name in arguments.functions: seeded[name](arguments.seed) if name in seeded else plain[name]()
