"""Helpers for the comparisons in this folder: run tessera-bench and PyTorch in turns, and measure the time and memory of each side."""
import argparse
import ctypes
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "build/lib/libtessera_ops.so"
BENCH = ROOT / "build/bin/tessera-bench"
SMALL_BLOCKS = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}


class OnDemand:
    """A tessera-bench process that runs a step on request."""

    def __init__(self, bench, *arguments, environment=None):
        command = [str(word) for word in (bench.resolve(), *arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
                                        env={**os.environ, **(environment or {})})

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{pathlib.Path(sys.argv[0]).name}: tessera-bench failed")
        return line

    def step(self):
        """Runs a step and returns its seconds."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.line()) / 1e3

    def grown_memory(self):
        proc = pathlib.Path("/proc", str(self.process.pid))
        self.step()
        (proc / "clear_refs").write_text("5")  # resets the high-water mark of the resident set
        before = resident("VmRSS", proc)
        self.step()
        return resident("VmHWM", proc) - before

    def peak_memory(self):
        return resident("VmHWM", pathlib.Path("/proc", str(self.process.pid)))

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def add_arguments(parser):
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--threads", type=int, help="default: LibTorch's choice")
    parser.add_argument("--time-at-most", type=float, metavar="SHARE", help="exit 1 if our time / eager PyTorch's time exceeds this")
    parser.add_argument("--memory-at-most", type=float, metavar="SHARE", help="exit 1 if our memory / eager PyTorch's memory exceeds this")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)  # used only in the fresh process that measures memory


def beyond_limits(args, time_share, memory_share):
    return (args.time_at_most is not None and time_share > args.time_at_most) or (
        args.memory_at_most is not None and memory_share > args.memory_at_most)


def torch_of(args):
    """Imports torch. If torch is missing, exits with a message that states where it was searched for."""
    try:
        import torch
    except ImportError:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {sys.executable} has no torch: run it with the Python of LibTorch's environment")
    if args.threads:
        torch.set_num_threads(args.threads)
    return torch


def prepare(args):
    """Returns torch with our operators loaded."""
    torch = torch_of(args)
    if not args.library.exists():
        sys.exit(f"{args.library} does not exist: build it (cmake --build build --target tessera_ops), or pass it with --library")
    torch.ops.load_library(str(args.library))
    return torch


def resident(key, process=pathlib.Path("/proc/self")):
    with open(process / "status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key + ":"))


def grown_memory(step):
    """The number of bytes by which the process grows while step() runs."""
    step()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # resets the high-water mark of the resident set
    before = resident("VmRSS")
    step()
    return resident("VmHWM") - before


def in_fresh_process(*words, environment=None):
    """Runs the same script again in a new process with additional arguments. Returns the number that the script prints."""
    command = [sys.executable, *sys.argv, *words]
    done = subprocess.run(command, env={**os.environ, **(environment or {})}, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def seconds_of(step):
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def take_turns(sides, repetitions, warm_up=2, pause=0.05):
    """Runs the sides in turns. sides: {name: function that runs a step and returns its seconds}. Returns the times without warm-up."""
    times = {name: [] for name in sides}
    for turn in range(warm_up + repetitions):
        for name, step in sides.items():
            time.sleep(pause)  # waits until the threads of the other side have stopped spinning
            seconds = step()
            if turn >= warm_up:
                times[name].append(seconds)
    return times


def times_as_fast(ours, theirs):
    """Returns the ratio of their median time to ours, and a text of it with the quartiles of the ratios of single turns."""
    ratio = statistics.median(theirs) / statistics.median(ours)
    low, _, high = statistics.quantiles([their / our for our, their in zip(ours, theirs)], n=4)
    return ratio, f"{ratio:.2f} ({low:.2f} to {high:.2f})"
