#!/usr/bin/env python3
"""Attacks tessera-serve with bad clients while good ones use it: cut and slow bodies, images of 50,000 x 50,000 pixels, deeply nested JSON,
wrong UTF-8, random bytes, a thousand idle connections, and clients that are gone before the answer.

  cmake --preset asan -DCMAKE_PREFIX_PATH=... && ninja -C build-asan tessera-serve
  scripts/check/bad_clients.py --serve build-asan/bin --seconds 600

Prints how many requests of good clients were answered, their slowest answer, and the resident memory before the attack and after each tenth
of it: memory that the allocator keeps for the threads stops growing, a leak does not. Exit code 1: a good request failed, the server ended,
AddressSanitizer found an error, or the memory grew by more than --growth in the second half. Needs only the standard library.
"""
import argparse
import base64
import contextlib
import json
import os
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/serving"))
from server import Server, noise, png, train  # noqa: E402

PATHS = ("/v1/embeddings", "/v1/similarity", "/v1/classify", "/v1/search", "/v1/explain", "/v1/nothing")
IMAGE = base64.b64encode(noise(1)).decode()
GOOD = [("/v1/embeddings", {"input": ["a red circle", "a blue square"]}), ("/v1/embeddings", {"input": IMAGE, "modality": "image"}),
        ("/v1/explain", {"image": IMAGE, "text": "a red circle"}), ("/v1/classify", {"images": IMAGE, "classes": ["red", "blue"]}),
        ("/v1/search", {"text": "a red circle", "k": 3})]


def request_of(path, body, length=None):
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body) if length is None else length}"
            "\r\n\r\n").encode() + body


def bad_bodies(generator):
    """Yields the bytes of bad requests, without end."""
    huge = base64.b64encode(png(50_000, 50_000)).decode()
    damaged = base64.b64encode(noise(2)[:80]).decode()
    while True:
        path, body = generator.choice(GOOD)
        whole = request_of(path, json.dumps(body).encode())
        changed = bytearray(whole)
        for _ in range(generator.randint(1, 8)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        yield from (whole[:generator.randrange(len(whole))], bytes(changed), request_of(generator.choice(PATHS), generator.randbytes(300)),
                    request_of(path, b"[" * generator.randint(1, 200_000)), request_of(path, b'{"input": "\xff\xfe"}'),
                    request_of(path, json.dumps({"input": huge, "modality": "image"}).encode()),
                    request_of(path, json.dumps({"input": damaged, "modality": "image"}).encode()),
                    request_of(path, b"{}", length=generator.choice([10 ** 18, 10 ** 30, -1, 10_000])), generator.randbytes(2000),
                    request_of(path, json.dumps({"input": ["a"] * generator.randint(1, 100_000)}).encode()))


class Attack:
    """Threads that send bad requests until `ended`."""

    def __init__(self, port):
        self.port, self.ended, self.sent = port, threading.Event(), 0
        self.threads = [threading.Thread(target=self.send_bad, args=(seed,)) for seed in range(6)]
        self.threads += [threading.Thread(target=self.send_slowly), threading.Thread(target=self.hold_connections)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def send_bad(self, seed):
        generator = random.Random(seed)
        for content in bad_bodies(generator):
            if self.ended.is_set():
                return
            with contextlib.suppress(OSError), self.connect() as client:
                client.sendall(content)
                self.sent += 1
                if generator.random() < 0.5:  # else the client is gone before the answer
                    client.settimeout(0.5)
                    client.recv(1000)

    def send_slowly(self):
        while not self.ended.is_set():
            with contextlib.suppress(OSError), self.connect() as client:
                client.sendall(request_of("/v1/embeddings", b"{", length=1000))
                while not self.ended.wait(1):
                    client.sendall(b" ")

    def hold_connections(self):
        while not self.ended.is_set():
            with contextlib.ExitStack() as stack:
                for _ in range(1000):
                    with contextlib.suppress(OSError):
                        stack.enter_context(self.connect())
                self.ended.wait(3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/bin", help="folder with the trainer (default: build/bin)")
    parser.add_argument("--serve", type=pathlib.Path, help="folder with tessera-serve, such as build-asan/bin (default: --programs)")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--growth", type=float, default=50, help="MiB by which the resident memory may grow in the second half (default: 50)")
    args = parser.parse_args()
    # A wait of the sanitizer's quarantine would look like a leak.
    os.environ.setdefault("ASAN_OPTIONS", "quarantine_size_mb=16:detect_leaks=1")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        train(args.programs.resolve(), "sparc", folder / "run")
        (folder / "photos").mkdir()
        for i in range(5):
            (folder / f"photos/{i}.png").write_bytes(noise(i))
        server = stack.enter_context(Server((args.serve or args.programs).resolve(), "--checkpoint", folder / "run", "--images", folder / "photos",
                                            "--quiet"))
        good, failed, slowest = 0, [], 0.0

        def use(seconds):
            nonlocal good, slowest
            end = time.monotonic() + seconds
            while time.monotonic() < end and server.process.poll() is None:
                path, body = GOOD[good % len(GOOD)]
                begun = time.monotonic()
                try:
                    status, answer = server.post(path, body)
                    if status != 200:
                        failed.append(f"{path}: {status} {answer}")
                except OSError as error:
                    failed.append(f"{path}: {error}")
                good += 1
                slowest = max(slowest, time.monotonic() - begun)

        # The first attack touches the stacks of the threads, so the memory is compared after it.
        with Attack(server.port):
            use(min(60, args.seconds / 4))
        use(10)
        resident = [server.resident()]
        with Attack(server.port) as attack:
            for _ in range(10):
                use(args.seconds / 10)
                resident.append(server.resident())
        use(10)
        resident.append(server.resident())
    errors = [line for line in server.log if "ERROR: " in line or "runtime error" in line]
    print(f"{attack.sent:,} bad requests; {good:,} good ones, {len(failed)} failed, the slowest took {slowest:.2f} s; resident memory "
          f"{', '.join(f'{each:.0f}' for each in resident)} MiB; exit code {server.process.returncode}; {len(errors)} errors of the sanitizers")
    for line in [*failed[:5], *errors[:5]]:
        print(" ", line)
    return 1 if failed or errors or server.process.returncode != 0 or resident[-1] - resident[5] > args.growth else 0


if __name__ == "__main__":
    sys.exit(main())
