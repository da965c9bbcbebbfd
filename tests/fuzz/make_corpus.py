#!/usr/bin/env python3
"""Writes the binary and generated seed inputs of the fuzz targets:
tests/fuzz/corpus/{image,tar,npy,parquet,safetensors,features,vocabulary,tokenizer_json}.

Needs numpy, Pillow, safetensors and sentencepiece. The files are in the repository, so run this script only to add files.
"""
import base64
import gzip
import io
import json
import struct
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import sentencepiece
from PIL import Image
from safetensors.numpy import load_file

CORPUS = Path(__file__).parent / "corpus"


def write(name, content):
    path = CORPUS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def encoded(picture, form, **options):
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def images():
    random = np.random.default_rng(0)
    rgb = Image.fromarray(random.integers(0, 256, (9, 13, 3), dtype=np.uint8))
    smooth = Image.fromarray(np.add.outer(np.arange(24), np.arange(40)).astype(np.uint8) * 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    write("image/rgb.jpg", encoded(rgb, "JPEG", quality=70))
    write("image/grey.jpg", encoded(smooth, "JPEG"))
    write("image/progressive.jpg", encoded(rgb, "JPEG", progressive=True))
    write("image/cmyk.jpg", encoded(rgb.convert("CMYK"), "JPEG"))
    write("image/exif.jpg", encoded(rgb, "JPEG", exif=exif))
    write("image/subsampled.jpg", encoded(rgb.resize((40, 24)), "JPEG", subsampling=2))
    write("image/cut.jpg", encoded(rgb, "JPEG")[:400])
    write("image/rgb.png", encoded(rgb, "PNG"))
    write("image/rgba.png", encoded(rgb.convert("RGBA"), "PNG"))
    write("image/grey.png", encoded(smooth, "PNG"))
    write("image/palette.png", encoded(rgb.quantize(7), "PNG"))
    write("image/bits.png", encoded(smooth.convert("1"), "PNG"))
    write("image/16.png", encoded(Image.fromarray(random.integers(0, 65536, (5, 6), dtype=np.uint16)), "PNG"))
    write("image/lossy.webp", encoded(rgb, "WEBP"))
    write("image/lossless.webp", encoded(rgb, "WEBP", lossless=True))
    write("image/alpha.webp", encoded(rgb.convert("RGBA"), "WEBP"))
    write("image/text", b"<!DOCTYPE html><title>404</title>")
    write("image/gif", encoded(rgb.quantize(4), "GIF"))
    write("image/interlaced.gif", encoded(smooth.quantize(30), "GIF", interlace=True))
    write("image/rgb.bmp", encoded(rgb, "BMP"))
    write("image/palette.bmp", encoded(rgb.quantize(7), "BMP"))
    for name in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        write(f"image/{name}.tiff", encoded(rgb, "TIFF", compression=name))
    write("image/group4.tiff", encoded(smooth.convert("1"), "TIFF", compression="group4"))
    write("image/palette.tiff", encoded(rgb.quantize(7), "TIFF"))
    unusual = load_file(CORPUS.parent.parent / "data/images/unusual_formats.safetensors")
    for name in ("webp_moving", "webp_one_color", "webp_exif_3", "jpeg_junk", "jpeg_zeros_for_end", "jpeg_xmp_8", "png_no_end", "png_exif_3",
                 "png_text_exif_3", "png_compressed_text_exif_3", "png_xmp_8", "tiff_grey_12", "tiff_grey_signed_32",
                 "tiff_color_differences_bt709", "gif_wide_codes", "bmp_run_beyond_row"):
        write("image/" + name, unusual[name + ".file"].tobytes())


def tables():
    folder = CORPUS.parent.parent / "data/parquet"
    for name in ("plain-1.parquet", "features.parquet", "names.parquet", "side.parquet", "saved/data-00000-of-00002.arrow"):
        write("parquet/" + name.replace("/", "-"), b"t" + (folder / name).read_bytes())
    write("parquet/ids", b"i" + (folder / "ids.npy").read_bytes())
    write("parquet/ids_table", b"i" + (folder / "ids_table.npy").read_bytes())
    write("parquet/expression", b"ewidth >= 224 and not (similarity < 0.28 or `a b` in ('x', 5)) and meta.name is not null\n"
          b'{"width": 300, "similarity": 0.3, "a b": "y", "meta": {"name": "n"}}')


def tar(members, form):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    bytes_ = out.getvalue()
    return bytes_.rstrip(b"\0") + bytes(-len(bytes_.rstrip(b"\0")) % 512 + 1024)


def tars():
    plain = [("a.jpg", b"x" * 20), ("a.txt", b"a cat"), ("b.jpg", b"y"), ("b.seg.png", b""), ("a.JSON", b"{}")]
    long = [("d" * 60 + "/" + "e" * 90 + ".txt", b"long"), ("c.txt", b"c")]
    for name, form in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        write(f"tar/{name}.tar", tar(plain, form))
    write("tar/gnu_long.tar", tar(long, tarfile.GNU_FORMAT))
    write("tar/pax_long.tar", tar([(n + "\u00e9", c) for n, c in long], tarfile.PAX_FORMAT))
    write("tar/cut.tar", tar(plain, tarfile.GNU_FORMAT)[:1100])
    write("tar/gzip.tar", gzip.compress(tar(plain, tarfile.GNU_FORMAT), mtime=0))
    huge = bytearray(tar([("a.txt", b"")], tarfile.GNU_FORMAT))
    huge[124:136] = b"\x80" + (1 << 62).to_bytes(11, "big")
    write("tar/base256.tar", bytes(huge))


def npys():
    for name, array in (("f4", np.ones((3, 5), np.float32)), ("f2", np.ones((2, 4), np.float16)),
                        ("f8", np.ones(6, np.float64)), ("i4", np.ones((2, 2), np.int32)),
                        ("fortran", np.asfortranarray(np.ones((3, 5), np.float32))),
                        ("empty", np.ones((0, 5), np.float32))):
        out = io.BytesIO()
        np.save(out, array)
        write(f"npy/{name}.npy", out.getvalue())
    out = io.BytesIO()
    np.lib.format.write_array(out, np.ones((2, 2), np.float32), version=(2, 0))
    write("npy/version2.npy", out.getvalue())


def safetensors(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor_files():
    entry = lambda dtype, shape, begin, end: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    write("safetensors/two", safetensors({"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 3], 0, 24),
                                          "b": entry("I64", [1], 24, 32)}, bytes(32)))
    write("safetensors/kinds", safetensors({name: entry(name, [2], at, at + 2 * size) for name, size, at in (
        ("BOOL", 1, 0), ("U8", 1, 2), ("BF16", 2, 4), ("F16", 2, 8), ("F64", 8, 12))}, bytes(28)))
    write("safetensors/empty", safetensors({}, b""))
    write("safetensors/scalar", safetensors({"s": entry("F32", [], 0, 4), "none": entry("F32", [0, 4], 4, 4)}, bytes(4)))
    write("safetensors/huge", safetensors({"a": entry("F32", [1 << 31, 1 << 31, 4], 0, 1 << 62)}, bytes(8)))
    write("safetensors/deep", safetensors(b'{"a":{"dtype":"F32","shape":[' + b"[" * 200 + b"]" * 200
                                          + b'],"data_offsets":[0,0]}}', b""))


def fingerprint(data):
    """Computes the same value as fingerprint() in src/base/digest.cpp."""
    def mix(x):
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31
    value = mix(mix(0) ^ len(data))
    for i in range(0, len(data), 8):
        value = mix(value ^ int.from_bytes(data[i:i + 8], "little"))
    return value


def feature_folders():
    samples = 3
    for dtype, code, name in (("float32", "f", "F32"), ("float16", "e", "F16")):
        values = {"class_token": [[i, i + 0.5] for i in range(samples)], "tokens": [[i, -i, 2 * i, 0] for i in range(samples)]}
        rows = {tensor: [struct.pack(f"<{len(row)}{code}", *row) for row in each] for tensor, each in values.items()}
        numbers = lambda each: struct.pack(f"<{samples}Q", *each)
        keys = b"".join(b"k%d" % i for i in range(samples))
        tensors = {"checksums": ("I64", [samples], numbers(fingerprint(rows["class_token"][i] + rows["tokens"][i]) for i in range(samples))),
                   "class_token": (name, [samples, 2], b"".join(rows["class_token"])),
                   "key_ends": ("I64", [samples], numbers(2 * i + 2 for i in range(samples))),
                   "pictures": ("I64", [samples], numbers(100 + i for i in range(samples))),
                   "tokens": (name, [samples, 2, 2], b"".join(rows["tokens"])),
                   "keys": ("U8", [len(keys)], keys)}
        header, data = {}, b""
        for tensor, (kind, shape, content) in tensors.items():
            header[tensor] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
            data += content
        shard = safetensors(header, data)
        manifest = {"format": 1, "settings": {"model": {"width": 2}}, "weights": "0123", "precision": "float32", "data": "three",
                    "dtype": dtype, "samples": samples, "left_out": {"bad_image": 1},
                    "tensors": [{"name": "class_token", "shape": [2]}, {"name": "tokens", "shape": [2, 2]}],
                    "shards": [{"name": "features-00000.safetensors", "samples": samples, "bytes": len(shard)}]}
        write(f"features/{dtype}", json.dumps(manifest).encode() + b"\n%%\n" + shard)
        if dtype == "float32":
            write("features/shard", shard)
    write("features/deep", b'{"format": 1, "settings": ' + b"[" * 200 + b"]" * 200 + b"}\n%%\n")


def vocabularies():
    words = "small large red blue green circle square star ring left right of above a the photo 2 cats".split()
    lines = [" ".join(words[(i * k) % len(words)] for k in range(1, 8)) for i in range(1, 200)]
    # Normalization rules, written in hexadecimal code points. There are only a few, because the library's own rules take 240 kB.
    rules = tempfile.NamedTemporaryFile(mode="w", suffix=".tsv")
    rules.write("".join(f"{ord(c):X}\t{ord(c.lower()):X}\n" for c in "ABCDEFGHIJ") + "FF21\t61\nFB01\t66 69\n")
    rules.flush()
    for kind, size in (("unigram", 43), ("bpe", 43)):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=size,
                                                 model_type=kind, normalization_rule_tsv=rules.name,
                                                 minloglevel=2, num_threads=1)
        write(f"vocabulary/{kind}.model", b"S" + model.getvalue())
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "photo", "##s", "of", "cat", "2", ","]
    write("vocabulary/wordpiece", b"w" + "\n".join(names).encode())
    write("vocabulary/merges", b"m" + b"i n</w>\nph oto</w>\nxx yy\nxxyy zz</w>")
    write("vocabulary/few_merges", b"c" + b"#version: 0.2\ni n\nt h\na n\n")
    write("vocabulary/gzip", b"c" + gzip.compress(b"#version: 0.2\ni n\nt h\na n</w>\n", mtime=0))


def shortened(file):
    """Returns a tokenizer.json with most of its vocabulary removed."""
    model, special = file["model"], {token["content"] for token in file["added_tokens"]}
    if "merges" in model:
        model["merges"] = model["merges"][:12]
        kept = {part for left, right in model["merges"] for part in (left, right, left + right.removeprefix("##"))} | special | set("aeiost \u0120\u2581")
    elif isinstance(model["vocab"], list):
        model["vocab"] = model["vocab"][:40]
        return file
    else:
        kept = set(sorted(model["vocab"], key=model["vocab"].get)[:40])
    model["vocab"] = {token: id for token, id in model["vocab"].items() if token in kept}
    return file


def tokenizer_files():
    files = Path(__file__).parent.parent / "data" / "foreign" / "tokenizers"
    for kind in ("gemma", "clip", "llama", "wordpiece", "unigram", "wordlevel", "added"):
        file = json.loads((files / f"{kind}.json").read_text())
        if kind == "gemma":  # keep only a few of Gemma's 256 single-byte tokens
            file["added_tokens"] = [token for token in file["added_tokens"] if not token["content"].startswith("<0x") or token["content"] < "<0x05"]
        write(f"tokenizer_json/{kind}", json.dumps(shortened(file), separators=(",", ":"), ensure_ascii=False).encode())
    units = [0] * 256
    # Units of a double-array trie that maps "b" to "a". Unit 200 holds the value of the key "b", which is the offset of the first
    # replacement text.
    units[ord("b")] = ord("b") | 1 << 8 | (ord("b") ^ 200) << 10
    units[200] = 1 << 31
    rules = struct.pack("<257I", 4 * len(units), *units) + b"a\0"
    parts = {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(rules).decode()},
                                                                {"type": "Prepend", "prepend": "\u2581"}, {"type": "Nmt"}, {"type": "NFKD"}]},
             "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "(?<=a)b|\\p{Lu}+\\w"}, "behavior": "MergedWithNext"},
                                                                     {"type": "FixedLength", "length": 3}, {"type": "Digits", "individual_digits": True},
                                                                     {"type": "CharDelimiterSplit", "delimiter": "-"}]},
             "post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel", "trim_offsets": True}, {"type": "BertProcessing", "sep": ["b", 1], "cls": ["a", 0]}]},
             "decoder": {"type": "Sequence", "decoders": [{"type": "BPEDecoder", "suffix": "</w>"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "Fuse"}]},
             "truncation": {"direction": "Left", "max_length": 9, "strategy": "LongestFirst", "stride": 0},
             "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"},
             "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}}
    write("tokenizer_json/parts", json.dumps(parts, separators=(",", ":")).encode())


if __name__ == "__main__":
    images()
    tables()
    tars()
    npys()
    tensor_files()
    feature_folders()
    vocabularies()
    tokenizer_files()
