#!/usr/bin/env python3
"""Reads shards packed by tessera-data with the Python package webdataset, and reads shards written by the package with tessera-data. The
package must be installed for this Python or for the one named in TESSERA_PYTHON; otherwise the exit code is 77 (skipped).

  scripts/check/webdataset_round_trip.py build/bin/tessera-data
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import webdataset
except ImportError:
    other = os.environ.pop("TESSERA_PYTHON", None)
    if other:
        os.execv(other, [other, *sys.argv])
    print("skipped: the Python package webdataset is not installed")
    sys.exit(77)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def ours(program, folder, pattern, *settings):
    """Returns the samples as tessera-data reads them, and its report."""
    dump = folder / "dump.jsonl"
    command = [program, "inspect", "--source", "webdataset", "--set", f"path={folder}/{pattern}", "--dump", dump, "--json"]
    for setting in settings:
        command += ["--set", setting]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert report["bad"] == {}, report["bad"]
    return [json.loads(line) for line in dump.read_text(encoding="utf-8").splitlines()], report


def theirs(folder, pattern):
    """Returns the samples as Python reads them: the bytes of each part."""
    shards = [str(shard) for shard in sorted(folder.glob(pattern))]
    return list(webdataset.WebDataset(shards, shardshuffle=False, empty_check=False))


def check_packed(program, folder):
    subprocess.run([program, "pack", "--source", "shapes", "--set", "size=40", "--set", "regions=true", "--format", "png",
                    "--shard-size", "9", "--out", folder], check=True, stdout=subprocess.DEVNULL)
    mine, report = ours(program, folder, "shard-*.tar")
    manifest = json.loads((folder / "shard.json").read_text())
    assert report["fingerprint"] == manifest["fingerprint"], (report["fingerprint"], manifest["fingerprint"])
    read = theirs(folder, "shard-*.tar")
    assert len(read) == len(mine) == 40, (len(read), len(mine))
    for a, b in zip(mine, read):
        side = json.loads(b["json"])
        assert a["key"] == b["__key__"], (a["key"], b["__key__"])
        assert a["image_sha256"] == sha256(b["png"]), a["key"]
        assert a["captions"] == side["captions"] and a["captions"][0] == b["txt"].decode(), a["key"]
        assert a["label"] == int(b["cls"]) == side["label"], a["key"]
        assert a["summary"] == b["summary.txt"].decode() and a["object_tags"] == b["objects.txt"].decode(), a["key"]
        assert a["objects"] == len(side["objects"]) and a["regions"] > 0 and b["regions.npy"][1:6] == b"NUMPY", a["key"]
    return read


def check_written(program, folder, pictures):
    """Checks shards written by the package's ShardWriter: keys with folders, captions in several scripts, several captions per image."""
    written = []
    with webdataset.ShardWriter(str(folder / "py-%05d.tar"), maxcount=7, verbose=0) as writer:
        for i, picture in enumerate(pictures):
            captions = [f"a café, 猫 no. {i}", f"second of {i}"][:1 + i % 2]
            key = f"część/{i % 3}/{i:06d}" + "x" * (90 * (i % 2))
            sample = {"__key__": key, "png": picture["png"], "txt": captions[0], "json": {"captions": captions, "url": "http://x/y"}}
            if i % 4:
                sample["cls"] = i
            writer.write(sample)
            written.append((key, captions, i if i % 4 else -1, sha256(picture["png"])))
    mine, _ = ours(program, folder, "py-*.tar")
    read = [(s["key"], s["captions"], s["label"], s["image_sha256"]) for s in mine]
    assert read == written, next(pair for pair in zip(read, written) if pair[0] != pair[1])
    return len(written)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as packed_folder, tempfile.TemporaryDirectory() as written_folder:
        packed = check_packed(sys.argv[1], pathlib.Path(packed_folder))
        written = check_written(sys.argv[1], pathlib.Path(written_folder), packed)
    print(f"{len(packed)} samples of tessera-data pack read back equal by webdataset {webdataset.__version__}, "
          f"{written} of its own by tessera-data")


if __name__ == "__main__":
    main()
