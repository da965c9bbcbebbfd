#!/usr/bin/env python3
"""Compares the captions per second of one thread. Our tokenizers (tessera-bench), OpenCLIP's, and Hugging Face's fast BERT tokenizer take
turns on the same captions. First checks with tessera-data that all ids are equal. Prints a Markdown table.

  scripts/compare/token_ids.py                             # 20,000 generated captions; one in five is not plain ASCII
  scripts/compare/token_ids.py --captions captions.txt     # one caption per line
  scripts/compare/token_ids.py --at-least 10 3             # exit code 1 if clip-bpe is less than 10 times as fast as OpenCLIP's tokenizer,
                                                           # or if wordpiece is less than 3 times as fast as Hugging Face's tokenizer

Needs the packages open_clip_torch and transformers, and a build of tessera-bench and tessera-data.
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
MERGES = ROOT / "configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz"
VOCAB = ROOT / "tests/data/wordpiece-small/vocab.txt"

SUBJECTS = """a young woman|two brown dogs|an elderly man|the skateboarder|a group of children|three firefighters|a black-and-white cat
my grandmother's kitchen|a vintage bicycle|several sailboats|a street musician|the old lighthouse|a chef|one giraffe|a bowl of ramen""".split("|")
VERBS = """is riding|are playing with|looks at|stands beside|holding|jumps over|walks past|leaning against|photographs|is covered by""".split("|")
OBJECTS = """a red frisbee|an umbrella|the wooden fence|a half-eaten sandwich|a motorcycle|graffiti|snow-capped mountains|a laptop
a flock of seagulls|an unidentified object|the merry-go-round|fresh blueberries|a "no parking" sign|her smartphone (2nd hand)""".split("|")
PLACES = """at the beach|in Central Park|on a rainy day|near the Eiffel Tower|at sunset|in a dimly lit room|downtown, 1987|beneath tall trees
during a thunderstorm|at 5:30 pm|in front of a stadium|on route 66|at the farmers' market""".split("|")
STYLES = ["", "", "", "A photo of ", "Close-up: ", "Stock photograph - ", "Illustration of ", "Portrait of "]
ENDS = ["", "", ".", ".", "!", " #travel #photography", " | Getty Images", ", high resolution", " - 1024x768"]
UNUSUAL = [" at the caf\u00e9", " \u2014 \u201cbest of\u201d 2019", " in Z\u00fcrich, Stra\u00dfe 5", " (\u6771\u4eac)", " it\u2019s 20\u00b0C", " \U0001f600",
           " &amp; friends", " \u041c\u043e\u0441\u043a\u0432\u0430", " \u2026", " na\u00efve art\u2122"]


def made_up(count):
    draw = random.Random(0)
    for _ in range(count):
        text = " ".join(part.replace("\n", " ") for part in map(draw.choice, (SUBJECTS, VERBS, OBJECTS, PLACES)))
        text = draw.choice(STYLES) + text + (draw.choice(UNUSUAL) if draw.random() < 0.2 else "") + draw.choice(ENDS)
        yield text[0].upper() + text[1:]


def references():
    """Returns {name: (tokenizer settings, [(title, function of all captions)])}. The ids of the first function must equal ours."""
    try:
        from open_clip.tokenizer import SimpleTokenizer
        from transformers import BertTokenizerFast
    except ImportError as error:
        sys.exit(f"compare/token_ids.py: {sys.executable}: {error}: pip install open_clip_torch transformers")
    clip = SimpleTokenizer()
    bert = BertTokenizerFast(vocab=str(VOCAB))
    engine = bert.backend_tokenizer
    engine.enable_truncation(76)

    def clip_ids(captions):
        return [([clip.sot_token_id] + clip.encode(caption))[:76] + [clip.eot_token_id] for caption in captions]

    return {
        f"{{name: clip-bpe, merges: {MERGES}, cleanup: full}}": [("OpenCLIP's SimpleTokenizer.encode", clip_ids)],
        f"{{name: clip-bpe, merges: {MERGES}}}": [],
        f"{{name: wordpiece, vocab: {VOCAB}}}": [
            ("Hugging Face's Rust engine, encode_batch_fast", lambda captions: [each.ids for each in engine.encode_batch_fast(captions)]),
            ("Hugging Face's Rust engine, encode", lambda captions: [engine.encode(caption).ids for caption in captions]),
            ("Hugging Face's BertTokenizerFast, a list", lambda captions: bert(captions)["input_ids"])],
    }


def our_ids(programs, tokenizer, captions):
    name, file = ("clip-bpe", MERGES) if "clip-bpe" in tokenizer else ("wordpiece", VOCAB)
    command = [programs / "tessera-data", "tokenize", "--tokenizer", name, "--vocab", file]
    if "cleanup: full" in tokenizer:
        command += ["--set", "cleanup=full"]
    lines = "".join(json.dumps({"text": caption}) + "\n" for caption in captions)
    out = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [json.loads(line)["ids"] for line in out.splitlines()]


def our_rates(programs, tokenizers, path, folder):
    measured = folder / "ours.json"
    command = [programs / "tessera-bench", "tokenizer", "--captions", path, "--repeats", "5", "--json", measured, "--tokenizers", *tokenizers]
    subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return [each["captions_per_second"] for each in json.loads(measured.read_text())["tokenizers"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--count", type=int, default=20_000, help="generated captions (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns; the median counts (default: %(default)s)")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/bin", help="default: %(default)s")
    parser.add_argument("--at-least", type=float, nargs=2, metavar="TIMES")
    args = parser.parse_args()
    for program in ("tessera-bench", "tessera-data"):
        if not (args.programs / program).exists():
            sys.exit(f"compare/token_ids.py: {args.programs / program} does not exist: build it, or pass --programs")
    captions = args.captions.read_text().splitlines() if args.captions else list(made_up(args.count))
    tokenizers = references()
    for tokenizer, others in tokenizers.items():
        if others and our_ids(args.programs, tokenizer, captions) != others[0][1](captions):
            sys.exit(f"compare/token_ids.py: ids differ: {tokenizer} and {others[0][0]}")

    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "captions.txt"
        path.write_text("\n".join(captions) + "\n")
        for _ in range(args.rounds):
            for tokenizer, rate in zip(tokenizers, our_rates(args.programs, tokenizers, path, pathlib.Path(folder))):
                rates.setdefault(tokenizer, []).append(rate)
            for title, function in (pair for others in tokenizers.values() for pair in others):
                start = time.perf_counter()
                function(captions)
                rates.setdefault(title, []).append(len(captions) / (time.perf_counter() - start))
    rate = {name: statistics.median(values) for name, values in rates.items()}

    full, basic, wordpiece = tokenizers
    openclip = tokenizers[full][0][0]
    best = max((title for title, _ in tokenizers[wordpiece]), key=rate.get)
    plain = sum(caption.isascii() and "&" not in caption for caption in captions) / len(captions)
    print(f"{len(captions):,} captions of {sum(map(len, captions)) / len(captions):.0f} characters on average, {plain:.0%} plain ASCII; one thread "
          f"each, median of {args.rounds} turns; ids equal.\n")
    print("| | captions/s | times |\n| --- | ---: | ---: |")
    for title, reference, name in [("`clip-bpe`, cleanup `basic`", openclip, basic), ("`clip-bpe`, cleanup `full`", openclip, full),
                                   ("`wordpiece`", best, wordpiece)]:
        print(f"| {title} | {rate[name]:,.0f} | {rate[name] / rate[reference]:.0f} |")
    for title, _ in tokenizers[full] + tokenizers[wordpiece]:
        print(f"| {title} | {rate[title]:,.0f} | {'1' if title in (openclip, best) else ''} |")
    if args.at_least and (rate[full] < args.at_least[0] * rate[openclip] or rate[wordpiece] < args.at_least[1] * rate[best]):
        sys.exit(1)


if __name__ == "__main__":
    main()
