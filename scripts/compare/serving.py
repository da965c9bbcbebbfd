#!/usr/bin/env python3
"""Measures tessera-serve beside infinity-emb: requests per second, latency and processor time with 1, 8 and 64 clients, for texts and images,
and the time from the start to the first answer. All servers serve the same CLIP ViT-B/32 with random weights, one after the other.

  python3 -m venv V && V/bin/pip install "infinity-emb[server,torch,vision]==0.0.78" "transformers<5" "torch<2.9" torchvision aiohttp
  V/bin/python scripts/compare/serving.py --infinity V/bin/infinity_emb --seconds 20

Without --photos FOLDER (a folder of JPEG files), the script makes 160 files of 640 x 480 pixels that compress like photographs. Each request
has one image, or one text of 5 to 12 words. The clients are threads of this script; transformers writes the model. Prints a Markdown table
for each pair of precisions, the cosines between the servers' embeddings, and writes all numbers to --out as JSON.
"""
import argparse
import base64
import http.client
import itertools
import json
import os
import pathlib
import random
import statistics
import struct
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


def make_photos(folder, count=160):
    """Writes images of 640 x 480 pixels: noise of several sizes, as in photographs, with edges."""
    import numpy
    from PIL import Image
    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(0)
    for number in range(count):
        levels = numpy.full((480, 640, 3), 127.5)
        for octave in range(9):
            rows, columns = max(1, 480 >> octave), max(1, 640 >> octave)
            noise = random.normal(0, 1, (rows, columns, 1)) + random.normal(0, 0.25, (rows, columns, 3))
            layer = numpy.stack([numpy.asarray(Image.fromarray(noise[:, :, c].astype("float32")).resize((640, 480), Image.BICUBIC))
                                 for c in range(3)], axis=2)
            levels += (6 if octave == 0 else 14) * layer
        for _ in range(12):
            top, left = random.integers(0, 480), random.integers(0, 640)
            levels[top:top + random.integers(1, 480), left:left + random.integers(1, 640)] += random.uniform(-40, 40)
        Image.fromarray(levels.clip(0, 255).astype("uint8")).save(folder / f"{number:03}.jpg", quality=90)


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

    def processor_seconds(self):
        """Returns the processor time of the server's process and its children."""
        stats, wanted = {}, {self.process.pid}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            stats[int(stat.parent.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
        while True:
            found = {pid for pid, (parent, _) in stats.items() if parent in wanted} - wanted
            if not found:
                break
            wanted |= found
        return sum(stats[pid][1] for pid in wanted if pid in stats) / os.sysconf("SC_CLK_TCK")

    def embedding(self, body):
        content = json.loads(self.post(http.client.HTTPConnection("127.0.0.1", 8321, timeout=600), body))
        raw = base64.b64decode(content["data"][0]["embedding"])
        return struct.unpack(f"<{len(raw) // 4}f", raw)

    def post(self, connection, body):
        connection.request("POST", self.path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            sys.exit(f"{self.name}: status {answer.status}: {content[:300]}")
        return content

    def measure(self, bodies, clients, seconds):
        """Returns requests per second, the median and the 99th percentile of the latency, and the server's processor time per request, in
        milliseconds."""
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
        begun, used = time.monotonic(), self.processor_seconds()
        threads = [threading.Thread(target=use) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ordered, seconds, used = sorted(latencies), time.monotonic() - begun, self.processor_seconds() - used
        return {"rate": len(ordered) / seconds, "median": 1e3 * statistics.median(ordered),
                "p99": 1e3 * ordered[int(0.99 * (len(ordered) - 1))], "processor": 1e3 * used / len(ordered)}

    def stop(self):
        self.process.terminate()
        self.process.wait()


def cosine(a, b):
    dot = lambda x, y: sum(p * q for p, q in zip(x, y))
    return dot(a, b) / (dot(a, a) * dot(b, b)) ** 0.5


def print_tables(rows, kinds, clients, ours, theirs):
    for precision, other in itertools.product(ours, theirs):
        us, them = f"tessera-serve {precision}", f"infinity-emb {other}"
        print(f"\n| requests of one input | {us}: requests/s, median, p99, processor | {them}: the same | rate | p99 |")
        print("| --- | --- | --- | --- | --- |")
        for kind, count in itertools.product(kinds, clients):
            a, b = rows[us][f"{kind} {count}"], rows[them][f"{kind} {count}"]
            cells = [f"{x['rate']:.1f}, {x['median']:,.0f} ms, {x['p99']:,.0f} ms, {x['processor']:.1f} ms" for x in (a, b)]
            print(f"| {kind}, {count} client{'s' * (count > 1)} | {cells[0]} | {cells[1]} | {a['rate'] / b['rate']:.2f} times | "
                  f"{a['p99'] / b['p99']:.2f} times |")
        print(f"| start to the first answer | {rows[us]['start']:.1f} s | {rows[them]['start']:.1f} s | | |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--infinity", default="infinity_emb", help="infinity's program (default: infinity_emb)")
    parser.add_argument("--photos", type=pathlib.Path, help="folder of .jpg files (default: made ones)")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "runs/serving/clip_vitb32", help="where the model is written")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement (default: 20)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--kinds", nargs="+", default=["text", "image"])
    parser.add_argument("--ours", nargs="*", default=["float32", "bfloat16"], help="precisions of tessera-serve")
    parser.add_argument("--theirs", nargs="*", default=["float32"],
                        help="types of infinity-emb (default: float32; it ignores others for CLIP on a CPU)")
    parser.add_argument("--serve-option", action="append", default=[], help="a further word for tessera-serve")
    parser.add_argument("--out", type=pathlib.Path, help="JSON file of all numbers (default: beside the model)")
    args = parser.parse_args()
    if not (args.model / "model.safetensors").exists():
        write_model(args.model)
    if args.photos is None:
        args.photos = args.model.parent / "photos"
        if not args.photos.exists():
            make_photos(args.photos)
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
    servers = [(f"tessera-serve {type}", [*tessera, "--precision", type], "/v1/embeddings") for type in args.ours]
    servers += [(f"infinity-emb {type}", [*infinity, "--dtype", type], "/embeddings") for type in args.theirs]
    rows, embeddings = {}, {}
    for name, command, path in servers:
        server = Server(name, [str(word) for word in command], path, bodies["text"][0], args.model.parent / f"{name.replace(' ', '_')}.log")
        rows[name] = {"start": server.start}
        embeddings[name] = [server.embedding(body) for kind in args.kinds for body in bodies[kind][:20]]
        for kind, clients in itertools.product(args.kinds, args.clients):
            server.measure(bodies[kind], clients, args.seconds / 4)
            rows[name][f"{kind} {clients}"] = server.measure(bodies[kind], clients, args.seconds)
            print(name, kind, clients, rows[name][f"{kind} {clients}"], file=sys.stderr)
        server.stop()
    print_tables(rows, args.kinds, args.clients, args.ours, args.theirs)
    print()
    for name in list(embeddings)[1:]:
        cosines = [cosine(a, b) for a, b in zip(next(iter(embeddings.values())), embeddings[name])]
        print(f"Least cosine of {len(cosines)} embeddings of {next(iter(embeddings))} and {name}: {min(cosines):.6f}")
    (args.out or args.model.parent / "serving.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
