"""A running tessera-serve, and images for its tests (server_test.py, page_test.py, scripts/check/bad_clients.py)."""
import json
import pathlib
import signal
import struct
import subprocess
import urllib.error
import urllib.request
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
def run(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def train(programs, name, folder, *overrides):
    """Trains a model for two steps with the programs in this folder."""
    run(programs / "trainer", "--config", ROOT / f"configs/shapes/{name}.yaml", "--set", f"run.folder={folder}", "training.steps=2",
        "schedule.warmup_steps=1", "evaluation.tasks=[]", "data.loader.batch_size=8", "data.train.size=64", "training.threads=1", *overrides)
    return folder


def png(width, height, rows=None):
    """Returns the bytes of an RGB PNG; without rows, its data are missing."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) if rows else chunk(b"IDAT", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + data + chunk(b"IEND", b"")


def noise(seed):
    return png(20, 12, [bytes((seed * 7 + 31 * row + 13 * i * i) % 256 for i in range(60)) for row in range(12)])


class Server:
    """A tessera-serve from a folder of programs, on a free port."""

    def __init__(self, programs, *arguments, stop=signal.SIGTERM):
        self.stop = stop
        self.process = subprocess.Popen([str(programs / "tessera-serve"), "--port", "0", "--threads", "1", *map(str, arguments)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if "serving" in line:
                self.port = int(line.split("http://")[1].split("/")[0].rsplit(":", 1)[1])
                break
        else:
            self.process.communicate()
            raise AssertionError("the server ended: " + "".join(self.log))
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(self.stop)
        self.out, errors = self.process.communicate(timeout=60)
        self.log += errors.splitlines()

    def get(self, path, headers=None):
        request = urllib.request.Request(self.url + path, headers=headers or {})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def post(self, path, body, headers=None):
        """Returns the status and the JSON of a POST request; a body of bytes is sent as it is."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def answer(self, path, **body):
        status, json_body = self.post(path, body)
        assert status == 200, json_body
        return json_body

    def resident(self):
        """Returns the resident memory in MiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024
