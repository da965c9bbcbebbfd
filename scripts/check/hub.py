#!/usr/bin/env python3
"""Reads models and data sets from a server with the paths of the Hugging Face Hub, which leads to a second server for large files.

  scripts/check/hub.py [--build build] [--model tests/data/foreign/siglip2]

model    tessera-convert hf://test/model writes the same file as from the local folder. The repository is private, so a token is needed;
         the second server refuses requests that have it. A second run with HF_HUB_OFFLINE needs no server.
data     tessera-data reads and packs the shards and the Parquet files of hf://datasets/test/data; the samples are those of local files.
         The list of files has several pages. Needs the Python package pyarrow for the Parquet files.
errors   a wrong name, a wrong revision, a gated repository and missing files when offline: one line each, and exit code 2.
same     the files of the model are those that huggingface_hub downloads from this server. Left out if that package is missing.

Everything runs on the loopback. Exit code 0: everything is as described.
"""
import argparse
import hashlib
import http.server
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".tar", ".parquet", ".bin")
PAGE = 3  # entries of one page of a list
TOKEN = "hf_test"
CARD = """---
configs:
- {config_name: captions, data_files: [{split: train, path: data/train-*}], default: true}
- {config_name: labeled, data_files: [{split: test, path: labeled/test-*}]}
dataset_info:
- config_name: labeled
  features: [{name: image, dtype: image}, {name: label, dtype: {class_label: {names: {"0": even, "1": odd}}}}]
---
"""


def git_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """The Hub with the folders in `repositories` ("models/OWNER/NAME"), or, if `hub` is not None, the server of its large files."""
    daemon_threads = True

    def __init__(self, repositories, hub=None):
        super().__init__(("127.0.0.1", 0), LargeFiles if hub is not None else Hub)
        self.repositories, self.hub, self.gated = repositories, hub, False
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_GET(self):
        self.server.requests.append(self.path)
        self.answer(*self.path.partition("?")[::2])

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


class LargeFiles(Handler):
    def answer(self, path, query):
        if self.headers["Authorization"] is not None:
            return self.reply(400, b"the token was sent to another server")
        data = pathlib.Path(urllib.parse.unquote(path)).read_bytes()
        if wanted := self.headers["Range"]:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            last = min(int(last or len(data)), len(data) - 1)
            return self.reply(206, data[int(first):last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}", ETag='"other"')
        self.reply(200, data, ETag='"other"')


class Hub(Handler):
    def answer(self, path, query):
        path = urllib.parse.unquote(path)
        for name, (folder, is_private) in self.server.repositories.items():
            for prefix, act in ((f"/api/{name}/revision/", self.revision), (f"/api/{name}/tree/{COMMIT}", self.tree),
                                (f"/api/{name}/tree/main", self.tree), (f"/{name.removeprefix('models/')}/resolve/", self.file)):
                if path.startswith(prefix):
                    if self.server.gated:
                        return self.reply(403, X_Error_Code="GatedRepo")
                    if is_private and self.headers["Authorization"] != f"Bearer {TOKEN}":
                        break
                    return act(name, folder, path[len(prefix):], query)
        self.reply(401, X_Error_Code="RepoNotFound")

    def revision(self, name, folder, revision, query):
        if revision not in ("main", "v1", COMMIT):
            return self.reply(404, X_Error_Code="RevisionNotFound")
        files = [{"rfilename": str(path.relative_to(folder))} for path in sorted(folder.rglob("*")) if path.is_file()]
        self.reply(200, json.dumps({"_id": "0", "id": name.split("/", 1)[1], "sha": COMMIT, "siblings": files, "private": False,
                                    "tags": [], "downloads": 0, "likes": 0}).encode())

    def tree(self, name, folder, at, query):
        at = at.strip("/")
        if not (folder / at).is_dir():
            return self.reply(404, X_Error_Code="EntryNotFound")
        parameters = dict(urllib.parse.parse_qsl(query))
        found = (folder / at).rglob("*") if parameters.get("recursive", "").lower() in ("true", "1") else (folder / at).iterdir()
        entries = []
        for path in sorted(found):
            entry = {"type": "directory" if path.is_dir() else "file", "path": str(path.relative_to(folder)), "size": 0, "oid": "0"}
            if path.is_file():
                data = path.read_bytes()
                entry |= {"size": len(data), "oid": git_id(data)}
                if path.name.endswith(LARGE):
                    entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            entries.append(entry)
        begin = int(parameters.pop("cursor", 0))
        link = {}
        if len(entries) > begin + PAGE:
            query = urllib.parse.urlencode(parameters | {"cursor": begin + PAGE})
            link["Link"] = f'<{self.server.url}{self.path.partition("?")[0]}?{query}>; rel="next"'
        self.reply(200, json.dumps(entries[begin:begin + PAGE]).encode(), **link)

    def file(self, name, folder, rest, query):
        revision, _, path = rest.partition("/")
        if revision not in ("main", COMMIT) or not (folder / path).is_file():
            return self.reply(404, X_Error_Code="EntryNotFound")
        data = (folder / path).read_bytes()
        if not path.endswith(LARGE):
            return self.reply(200, data, ETag=f'"{git_id(data)}"', X_Repo_Commit=COMMIT)
        self.reply(302, Location=self.server.hub.url + urllib.parse.quote(str(folder / path)), X_Repo_Commit=COMMIT,
                   X_Linked_Etag=f'"{hashlib.sha256(data).hexdigest()}"', X_Linked_Size=str(len(data)))


def write_data(folder, images):
    """Writes the same samples as shards and as Parquet files of a split train."""
    (folder / "shards").mkdir(parents=True)
    (folder / "data").mkdir()
    rows = [(f"{i:04}", image.read_bytes(), f"picture {i}") for i, image in enumerate(sorted(images.glob("small*.jpg")))]
    for shard in range(4):
        with tarfile.open(folder / "shards" / f"{shard:05}.tar", "w") as tar:
            for key, image, caption in rows[shard::4]:
                for ending, data in (("jpg", image), ("txt", caption.encode())):
                    info = tarfile.TarInfo(f"{key}.{ending}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return False
    for part in range(2):
        table = pyarrow.Table.from_pylist([{"__key__": key, "image": {"bytes": image, "path": key + ".jpg"}, "caption": caption}
                                           for key, image, caption in rows[part::2]])
        pyarrow.parquet.write_table(table, folder / "data" / f"train-{part:05}-of-00002.parquet", row_group_size=2)
    (folder / "labeled").mkdir()
    table = pyarrow.Table.from_pylist([{"image": {"bytes": image, "path": None}, "label": i % 2} for i, (_, image, _) in enumerate(rows)])
    pyarrow.parquet.write_table(table, folder / "labeled" / "test-00000-of-00001.parquet")
    (folder / "README.md").write_text(CARD)
    return True


class Check:
    def __init__(self, arguments, folder):
        self.build, self.folder, self.failed = arguments.build, folder, False
        self.model = folder / "repositories" / "model"
        shutil.copytree(arguments.model, self.model)
        (self.model / "pytorch_model.bin").write_bytes(b"pickled weights, which nobody reads")
        self.data = folder / "repositories" / "data"
        self.has_tables = write_data(self.data, ROOT / "tests" / "data" / "images")
        self.large = Server({}, hub=self)
        self.hub = Server({"models/test/model": (self.model, True), "datasets/test/data": (self.data, False)})
        self.hub.hub = self.large

    def report(self, good, text):
        self.failed |= not good
        print("ok    " if good else "FAILED", text, flush=True)

    def run(self, program, *words, token=TOKEN, **variables):
        home = self.folder / "home"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "AWS_"))}
        environment |= {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(home), "TESSERA_REMOTE_CACHE": str(self.folder / "cache"),
                        "OMP_NUM_THREADS": "1", "no_proxy": "127.0.0.1"} | ({"HF_TOKEN": token} if token else {}) | variables
        return subprocess.run([str(self.build / "bin" / program), *map(str, words)], env=environment, capture_output=True, text=True)

    def convert(self, source, out, **options):
        result = self.run("tessera-convert", source, self.folder / out, **options)
        if result.returncode != 0:
            self.report(False, f"tessera-convert {source}: {result.stderr.strip()[-300:]}")
            return out
        return (self.folder / out).read_bytes()

    def check_model(self):
        local = self.convert(self.model, "local.safetensors")
        self.report(self.convert("hf://test/model", "hub.safetensors") == local, "model: hf://test/model is the model of the local folder")
        self.report(self.convert("hf://test/model@v1", "tag.safetensors") == local, "model: a tag")
        before = len(self.hub.requests)
        offline = self.convert("hf://test/model", "offline.safetensors", token="", HF_HUB_OFFLINE="1")
        self.report(offline == local and len(self.hub.requests) == before, "model: offline, from the cache")

    def samples(self, name, source, path, *settings):
        out = self.folder / name
        result = self.run("tessera-data", "pack", "--source", source, "--set", f"path={path}", *settings, "--out", out)
        if result.returncode != 0:
            self.report(False, f"tessera-data pack {path}: {result.stderr.strip()[-300:]}")
            return name
        return [path.read_bytes() for path in sorted([*out.glob("*.tar"), *out.glob("classes.txt")])]

    def check_data(self):
        cases = [("webdataset", self.data / "shards", "hf://datasets/test/data/shards/"),
                 ("webdataset", self.data / "shards", "hf://datasets/test/data@main/shards/{00000..00003}.tar")]
        if self.has_tables:
            cases += [("parquet", self.data / "data", "hf://datasets/test/data"),
                      ("parquet", self.data / "data", "hf://datasets/test/data/data/train-*.parquet")]
        for i, (source, here, there) in enumerate(cases):
            self.report(self.samples(f"local{i}", source, here) == self.samples(f"hub{i}", source, there), f"data: {there}")
        if not self.has_tables:
            return
        words = ("--set", "configuration=labeled")
        here, there = (self.samples(f"labeled-{place}", "parquet", path, *words)
                       for place, path in (("local", self.data), ("hub", "hf://datasets/test/data")))
        self.report(here == there and b"even\nodd\n" in here, "data: a configuration and its class names in README.md")

    def check_errors(self):
        self.hub.gated = True
        cases = [("hf://test/model", {}, "is gated: accept its conditions at")]
        for name, variables, expected in cases:
            self.expect_error(name, variables, expected)
        self.hub.gated = False
        for name, variables, expected in [
                ("hf://test/none", {}, "does not exist, or your token"),
                ("hf://test/model", {"token": ""}, "does not exist, or is private: check the name, or set HF_TOKEN"),
                ("hf://test/model@v3", {}, "has no branch, tag or commit v3"),
                ("hf://test/other", {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids requests"),
                ("hf://test", {}, "expected hf://OWNER/NAME")]:
            self.expect_error(name, variables, expected)

    def expect_error(self, name, variables, expected):
        result = self.run("tessera-convert", name, self.folder / "none.safetensors", **variables)
        lines = result.stderr.strip().splitlines()
        self.report(result.returncode == 2 and len(lines) == 1 and expected in lines[0], f"errors: {' '.join(lines)}")

    def check_same(self):
        try:
            import huggingface_hub
        except ImportError:
            print("huggingface_hub is not installed: its files are not compared", flush=True)
            return
        code = ("import huggingface_hub, sys; print(huggingface_hub.snapshot_download('test/model', "
                "allow_patterns=['*.json', '*.txt', '*.model', '*.safetensors']))")
        environment = os.environ | {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.folder / "home"), "HF_TOKEN": TOKEN,
                                    "HF_HUB_DISABLE_XET": "1", "no_proxy": "127.0.0.1"}
        result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        if result.returncode != 0:
            return self.report(False, f"same: huggingface_hub: {result.stderr.strip()[-500:]}")
        theirs = {path.name: path.read_bytes() for path in pathlib.Path(result.stdout.split()[-1]).iterdir()}
        folders = [path for path in (self.folder / "cache" / "models").iterdir() if path.name.endswith("-model")]
        ours = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders]
        self.report(theirs in ours, f"same: the {len(theirs)} files that huggingface_hub {huggingface_hub.__version__} downloads")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "tests" / "data" / "foreign" / "siglip2", help="a published model")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        check = Check(arguments, pathlib.Path(name))
        check.check_model()
        check.check_data()
        check.check_errors()
        check.check_same()
    sys.exit(1 if check.failed else 0)


if __name__ == "__main__":
    main()
