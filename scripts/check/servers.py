"""Servers that tests start: SeaweedFS and Caddy, and free TCP ports for them."""
import contextlib
import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

BUCKET = "shards"


def free_ports(count, also=0):
    """Returns numbers of free ports of the loopback; with `also`, the ports that are so much higher are free, too. Other programs that take
    just any port cannot take these in the meantime, because the kernel gives them ports from 32768 on."""
    found = []
    for port in random.SystemRandom().sample(range(12000, 20000), 8000):
        with contextlib.suppress(OSError):
            for each in {port, port + also}:
                socket.create_server(("127.0.0.1", each)).close()
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no port from 12000 to 19999 is free")


def installed(name):
    """Returns the path of a program that a Python package may have installed, or None."""
    return shutil.which(name, path=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")]))


@contextlib.contextmanager
def running(command, log, **options):
    """Runs a server. Prints the end of its log if the check exits meanwhile."""
    with open(log, "w") as file, subprocess.Popen(command, stdout=file, stderr=file, **options) as process:
        try:
            yield process
        except SystemExit:
            print(log.read_text()[-3000:])
            raise
        finally:
            process.terminate()


@contextlib.contextmanager
def seaweed(folder, shards):
    """Starts SeaweedFS with the shards in a bucket. Yields the ports of its S3 server and of its filer, and its process id; without
    SeaweedFS, yields three times None."""
    program = installed("weed")
    if program is None:
        print("SeaweedFS is not installed (scripts/setup.sh --stores): signatures and runs are not tested", flush=True)
        yield None, None, None
        return
    keys = {"identities": [{"name": "test", "credentials": [{"accessKey": "key", "secretKey": "secret"}],
                            "actions": ["Admin", "Read", "Write", "List"]}]}
    (folder / "keys.json").write_text(json.dumps(keys))
    (folder / "weed").mkdir()
    s3, master, volume, filer = free_ports(4, also=10000)  # SeaweedFS adds 10000 to each port for a second one
    command = [program, "server", f"-dir={folder / 'weed'}", "-s3", f"-s3.port={s3}", f"-s3.config={folder / 'keys.json'}", "-ip=127.0.0.1",
               "-ip.bind=127.0.0.1", f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", "-volume.max=100",
               "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    with running(command, folder / "weed.log") as process:
        for path in sorted(shards.iterdir()):
            upload(f"http://127.0.0.1:{filer}/buckets/{BUCKET}/{path.name}", path.read_bytes(), process)
        wait_for(s3, process, "SeaweedFS")
        yield s3, filer, process.pid


def wait_for(port, process, name):
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit(f"{name} does not start; its log is above")


@contextlib.contextmanager
def caddy(program, folder, shards, upstream):
    """Starts Caddy with a certificate of its own, folder/public.pem. Yields two ports that speak TLS: one serves the folder `shards`, and the
    other passes requests on to the port `upstream`."""
    key, public = folder / "key.pem", folder / "public.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(public)], check=True, capture_output=True)
    ports = free_ports(2)
    sites = zip(ports, (f"root * {shards}\nfile_server", f"reverse_proxy 127.0.0.1:{upstream}"))
    (folder / "Caddyfile").write_text("{\nadmin off\nauto_https off\nservers {\nprotocols h1 h2\n}\n}\n" + "".join(
        f"https://localhost:{port} {{\ntls {public} {key}\n{site}\n}}\n" for port, site in sites))
    command = [program, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    with running(command, folder / "caddy.log", env=os.environ | home) as process:
        for port in ports:
            wait_for(port, process, "Caddy")
        yield ports


def upload(url, data, process):
    for _ in range(600):  # until the filer has started
        try:
            urllib.request.urlopen(urllib.request.Request(url, data=data, method="PUT"), timeout=30).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    sys.exit(f"SeaweedFS does not take {url}; its log is above")
