#!/usr/bin/env python3
"""Measures tessera-serve beside infinity-emb: requests per second and latency with 1, 8 and 64 clients, for texts and images, and the time
from the start to the first answer. Both serve the same CLIP ViT-B/32 with random weights, one after the other.

  python3 -m pip install torch torchvision "infinity-emb[server,torch,vision]" transformers tokenizers
  scripts/compare/serving.py --infinity path/to/infinity_emb --photos FOLDER --seconds 20

--photos is a folder of JPEG files; each request has one image, or one text of 5 to 12 words. The clients are threads of this script, which
uses only the standard library; transformers writes the model. Prints a Markdown table.
"""
import argparse
import base64
import http.client
import itertools
import json
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORDS = ("a the dog cat child man woman runs sits jumps plays red blue green large small grass water street beach snow ball bicycle car table "
         "on in near with under two three black white").split()


def write_model(folder):
    """Writes a CLIP ViT-B/32 as transformers publishes it, with random weights and CLIP's own vocabulary."""
    import gzip

    import torch
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPProcessor, CLIPTokenizerFast
    torch.manual_seed(0)
    lines = gzip.open(ROOT / "configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz").read().decode().split("\n")
    merges = lines[1:49152 - 256 - 2 + 1]
    numbers = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    letters = [chr(n) for n in numbers] + [chr(256 + i) for i in range(256 - len(numbers))]
    entries = letters + [letter + "</w>" for letter in letters] + ["".join(merge.split()) for merge in merges]
    entries += ["<|startoftext|>", "<|endoftext|>"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({entry: i for i, entry in enumerate(entries)}))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    tokenizer = CLIPTokenizerFast(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)
    CLIPProcessor(CLIPImageProcessor(), tokenizer).save_pretrained(folder)
    CLIPModel(CLIPConfig()).eval().save_pretrained(folder)


class Server:
    """A server that has been started and has answered once."""

    def __init__(self, name, command, path, body, log):
        self.name, self.path = name, path
        begun = time.monotonic()
        self.process = subprocess.Popen(command, stdout=open(log, "w"), stderr=subprocess.STDOUT)
        while True:
            try:
                self.post(http.client.HTTPConnection("127.0.0.1", 8321, timeout=600), body)
                break
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"{name} ended; its output is in {log}")
                time.sleep(0.05)
        self.start = time.monotonic() - begun

    def post(self, connection, body):
        connection.request("POST", self.path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            sys.exit(f"{self.name}: status {answer.status}: {content[:300]}")
        return content

    def measure(self, bodies, clients, seconds):
        """Returns requests per second, and the median and the 99th percentile of the latency in milliseconds."""
        latencies, lock, next_body = [], threading.Lock(), itertools.cycle(bodies)
        end = time.monotonic() + seconds

        def use():
            connection = http.client.HTTPConnection("127.0.0.1", 8321, timeout=600)
            while time.monotonic() < end:
                with lock:
                    body = next(next_body)
                begun = time.monotonic()
                self.post(connection, body)
                with lock:
                    latencies.append(time.monotonic() - begun)
        begun = time.monotonic()
        threads = [threading.Thread(target=use) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ordered = sorted(latencies)
        return len(ordered) / (time.monotonic() - begun), 1e3 * statistics.median(ordered), 1e3 * ordered[int(0.99 * (len(ordered) - 1))]

    def stop(self):
        self.process.terminate()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infinity", default="infinity_emb", help="infinity's program (default: infinity_emb)")
    parser.add_argument("--photos", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "runs/serving/clip_vitb32", help="where the model is written")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement (default: 20)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--serve-option", action="append", default=[], help="a further word for tessera-serve")
    args = parser.parse_args()
    if not (args.model / "model.safetensors").exists():
        write_model(args.model)
    generator = random.Random(0)
    texts = [" ".join(generator.choices(WORDS, k=generator.randint(5, 12))) for _ in range(500)]
    photos = sorted(args.photos.rglob("*.jpg"))[:200]
    if not photos:
        sys.exit(f"{args.photos}: holds no .jpg files")
    urls = ["data:image/jpeg;base64," + base64.b64encode(photo.read_bytes()).decode() for photo in photos]
    bodies = {kind: [json.dumps({"model": args.model.name, "input": [item], "modality": kind, "encoding_format": "base64"}) for item in items]
              for kind, items in (("text", texts), ("image", urls))}
    tessera = [ROOT / "build/bin/tessera-serve", "--checkpoint", args.model, "--port", "8321", "--quiet", *args.serve_option]
    infinity = [args.infinity, "v2", "--model-id", args.model, "--served-model-name", args.model.name, "--engine", "torch", "--device", "cpu",
                "--port", "8321", "--no-bettertransformer"]
    rows = {}
    for name, command, path in (("tessera-serve", tessera, "/v1/embeddings"), ("infinity-emb", infinity, "/embeddings")):
        server = Server(name, [str(word) for word in command], path, bodies["text"][0], args.model.parent / f"{name}.log")
        rows[name, "start"] = server.start
        for kind, clients in itertools.product(bodies, args.clients):
            server.measure(bodies[kind], clients, args.seconds / 4)
            rows[name, kind, clients] = server.measure(bodies[kind], clients, args.seconds)
            print(name, kind, clients, rows[name, kind, clients], file=sys.stderr)
        server.stop()
    print("| | tessera-serve: requests/s, median, p99 | infinity-emb: requests/s, median, p99 | rate | p99 |")
    print("| --- | --- | --- | --- | --- |")
    for kind, clients in itertools.product(bodies, args.clients):
        ours, theirs = rows["tessera-serve", kind, clients], rows["infinity-emb", kind, clients]
        cells = [f"{rate:.1f}, {median:.0f} ms, {late:.0f} ms" for rate, median, late in (ours, theirs)]
        print(f"| {kind}, {clients} clients | {cells[0]} | {cells[1]} | {ours[0] / theirs[0]:.2f} times | {ours[2] / theirs[2]:.2f} times |")
    print(f"| start to the first answer | {rows['tessera-serve', 'start']:.1f} s | {rows['infinity-emb', 'start']:.1f} s | | |")


if __name__ == "__main__":
    main()
