#!/usr/bin/env python3
"""Compares the tokenizer tokenizer_json with the package `tokenizers`. First trains one tokenizer of each kind. Then compares the ids of
texts in many writing systems, and the texts per second of one thread, in turns. Prints a Markdown table. Downloads nothing.

  scripts/compare/tokenizer_json.py                             # trains and compares one tokenizer of each kind
  scripts/compare/tokenizer_json.py --files FOLDER/tokenizer.json
  scripts/compare/tokenizer_json.py --at-least 10               # exit code 1 if Tessera is less than 10 times as fast as `tokenizers`

Needs the package tokenizers, and a build of tessera-bench and tessera-data. Rates use the CPU time of both sides, so that other load on the
machine changes them little. Both sides have seen the words before the measurement. The package also caches the ids of whole texts, but it
has not seen these texts.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

for variable, value in {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}.items():
    os.environ[variable] = value

from token_ids import ROOT, made_up  # noqa: E402: the variables above must be set before any library is loaded

try:
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as error:
    sys.exit(f"compare/tokenizer_json.py: {sys.executable}: {error}: pip install tokenizers")

SCRIPTS = """\u03a3\u0391\u03a3 \u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 \u03ba\u03b1\u03b9 \u03b7 \u03b8\u03ac\u03bb\u03b1\u03c3\u03c3\u03b1
\u041c\u043e\u0441\u043a\u0432\u0430 \u0441\u0442\u043e\u043b\u0438\u0446\u0430 \u0420\u043e\u0441\u0441\u0438\u0438 \u0436\u0438\u0437\u043d\u044c \u0451\u043b\u043a\u0430
\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0643\u0650\u062a\u0627\u0628 \u0661\u0662\u0663
\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd \u05e1\u05e4\u05e8
\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0939\u093f\u0928\u094d\u0926\u0940
\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22
\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \u6771\u4eac \u4f60\u597d \u4e16\u754c
\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \ud55c\uad6d\uc5b4""".split()
ODD = ["", " ", "   \t\n\r\n  a   b ", "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e9\U0001f1ea", "e\u0301 a\u0323\u0308 \u212b \ufb01 \u2460 \u00bd \uff46\uff55\uff4c\uff4c",
       "\x00\x01\x7f\x85\u00ad\u200b\ufeff\ufffd", "\u0130stanbul \u00df \u1e9e \u01c5", "x" * 3000, "a b" * 2000, "it's WE'LL '\u017f don't", "<s> </s> [SEP] <unk> <|endoftext|>", "\u2581\u2581a\u2581 b"]


def foreign(count):
    draw = random.Random(1)
    return [" ".join(draw.choices(SCRIPTS, k=draw.randint(4, 10))) + draw.choice(["", ".", "!", " \U0001f600"]) for _ in range(count)]


def odd(count):
    """Texts of arbitrary characters mixed with words and special cases."""
    draw = random.Random(2)

    def piece():
        kind = draw.random()
        if kind < 0.3:
            return draw.choice(ODD)[:40]
        if kind < 0.6:
            return draw.choice(SCRIPTS)
        last = draw.choice([0x7F, 0x24F, 0x8FF, 0x1FFF, 0x2BFF, 0xD7FF, 0x1FFFF, 0x10FFFF])
        codes = (draw.randint(0, last) for _ in range(draw.randint(1, 6)))
        return "".join(chr(code) for code in codes if not 0xD800 <= code <= 0xDFFF)

    return ODD + ["".join(piece() + draw.choice(["", " ", "'s", "\u0301"]) for _ in range(draw.randint(1, 8))) for _ in range(count)]


CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
LLAMA = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def trained(vocab_size, corpus):
    """Trains one tokenizer of each kind. Returns {name: tokenizer}."""
    byte_level, alphabet = pre_tokenizers.ByteLevel, pre_tokenizers.ByteLevel.alphabet()
    common = {"vocab_size": vocab_size, "show_progress": False}

    def made(model, trainer, normalizer, splitter, ends):
        tokenizer = Tokenizer(model)
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = splitter
        tokenizer.train_from_iterator(corpus, trainer)
        begin, end = ends
        special = [(name, tokenizer.token_to_id(name)) for name in ends if name]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{begin} $A {end}".strip(), pair="$A $B", special_tokens=special)
        return tokenizer

    def bpe(special, **more):
        return trainers.BpeTrainer(special_tokens=special, **common, **more)

    sequence, metaspace = pre_tokenizers.Sequence, pre_tokenizers.Metaspace
    clip, roberta, bert = ["<|startoftext|>", "<|endoftext|>"], ["<s>", "<pad>", "</s>", "<unk>"], ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    out = {}
    out["CLIP"] = made(models.BPE(unk_token=clip[1], end_of_word_suffix="</w>"), bpe(clip, initial_alphabet=alphabet, end_of_word_suffix="</w>"),
                       normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
                       sequence([pre_tokenizers.Split(Regex(CLIP), "removed", invert=True), byte_level(add_prefix_space=False)]), clip)
    out["RoBERTa, GPT-2"] = made(models.BPE(), bpe(roberta, initial_alphabet=alphabet), None, byte_level(add_prefix_space=False), ("<s>", "</s>"))
    out["Llama 3"] = made(models.BPE(ignore_merges=True), bpe(roberta, initial_alphabet=alphabet), None,
                          sequence([pre_tokenizers.Split(Regex(LLAMA), "isolated"), byte_level(add_prefix_space=False, use_regex=False)]), ("<s>", ""))
    gemma = models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    out["Gemma"] = made(gemma, bpe(roberta + [f"<0x{byte:02X}>" for byte in range(256)]), normalizers.Replace(" ", "\u2581"),
                        pre_tokenizers.Split("\u2581", "merged_with_next"), ("", "</s>"))
    # Gemma's file has this pre-tokenizer. It has no effect, because the normalizer leaves no spaces.
    out["Gemma"].pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    whole = models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    out["BPE of whole texts"] = made(whole, bpe(roberta + [f"<0x{byte:02X}>" for byte in range(256)]), normalizers.Replace(" ", "\u2581"),
                                     pre_tokenizers.Split(" ", "merged_with_previous"), ("", "</s>"))
    out["BERT"] = made(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(special_tokens=bert, **common), normalizers.BertNormalizer(),
                       pre_tokenizers.BertPreTokenizer(), ("[CLS]", "[SEP]"))
    unigram = trainers.UnigramTrainer(special_tokens=roberta, unk_token="<unk>", **common)
    out["XLM-RoBERTa, T5"] = made(models.Unigram(), unigram, normalizers.NFKC(), sequence([pre_tokenizers.WhitespaceSplit(), metaspace()]), ("<s>", "</s>"))
    out["Unigram of whole texts"] = made(models.Unigram(), unigram, normalizers.NFKC(), metaspace(split=False), ("", "</s>"))
    return out


def our_ids(programs, path, texts):
    command = [programs / "tessera-data", "tokenize", "--tokenizer", "tokenizer_json", "--set", f"model={path}", "--set", "context_length=1000000"]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    out = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line)["ids"] for line in out.splitlines()]


def our_rate(programs, path, texts, folder):
    captions, measured = folder / "captions.txt", folder / "ours.json"
    captions.write_text("\n".join(texts) + "\n")
    command = [programs / "tessera-bench", "tokenizer", "--captions", captions, "--repeats", "5", "--json", measured,
               "--tokenizers", f"{{name: tokenizer_json, model: '{path}', context_length: 100000}}"]
    subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return len(texts) / json.loads(measured.read_text())["tokenizers"][0]["processor_seconds"]


def their_rate(path, texts, others):
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.encode_batch(others)
    start = time.process_time()
    tokenizer.encode_batch(texts)
    return len(texts) / (time.process_time() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=pathlib.Path, nargs="+", metavar="FILE", help="tokenizer.json files (default: tokenizers trained by this script)")
    parser.add_argument("--count", type=int, default=12_000, help="generated texts of each language (default: %(default)s)")
    parser.add_argument("--vocab-size", type=int, default=3000, help="vocabulary size of the trained tokenizers (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns; the median counts (default: %(default)s)")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/bin", help="default: %(default)s")
    parser.add_argument("--at-least", type=float, default=0, metavar="TIMES")
    args = parser.parse_args()
    both = {"English": list(made_up(2 * args.count)), "other scripts": foreign(2 * args.count)}
    sets, others = ({language: texts[half * args.count:(half + 1) * args.count] for language, texts in both.items()} for half in (0, 1))
    compared = [text for texts in sets.values() for text in texts[:3000]] + odd(3000)
    print(f"| tokenizer | texts | package, texts/s | Tessera, texts/s | times |\n| --- | --- | ---: | ---: | ---: |")
    slow = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if args.files:
            paths = {str(path): path.resolve() for path in args.files}
        else:
            paths = {}
            for i, (kind, tokenizer) in enumerate(trained(args.vocab_size, sets["English"][:4000] + sets["other scripts"][:4000]).items()):
                paths[kind] = folder / f"{i}.json"
                tokenizer.save(str(paths[kind]))
        for kind, path in paths.items():
            theirs = [each.ids for each in Tokenizer.from_file(str(path)).encode_batch(compared)]
            for text, ours, wanted in zip(compared, our_ids(args.programs, path, compared), theirs):
                if ours != wanted:
                    sys.exit(f"compare/tokenizer_json.py: {kind}: ids differ: {text[:80]!r}: {ours[:20]}, expected {wanted[:20]}")
            for language, texts in sets.items():
                pairs = [(their_rate(path, texts, others[language]), our_rate(args.programs, path, texts, folder)) for _ in range(args.rounds)]
                their, our = (statistics.median(column) for column in zip(*pairs))
                times = statistics.median(our / their for their, our in pairs)
                print(f"| {kind} | {language} | {their:,.0f} | {our:,.0f} | {times:.0f} |", flush=True)
                if times < args.at_least:
                    slow.append(f"{kind}, {language}")
    print(f"\nIds of {len(compared):,} texts are equal.")
    if slow:
        sys.exit(f"compare/tokenizer_json.py: below {args.at_least:g} times: {'; '.join(slow)}")


if __name__ == "__main__":
    main()
