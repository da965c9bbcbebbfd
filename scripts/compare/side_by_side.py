"""Shared by the comparisons in this folder: tessera-bench taking turns with PyTorch, and the comparison of a fused operator's time and memory
with eager PyTorch's composed operations.

Times are medians over repetitions in which the two take turns in one process. Memory is measured in a fresh process for each side, which
runs everything once and then measures how far the resident set grows during a second run. The results and the gradients of the inputs,
which both sides must hold, are subtracted; the rest is the operator's own memory.
"""
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
        (proc / "clear_refs").write_text("5")  # resets the high-water mark
        before = resident("VmRSS", proc)
        self.step()
        return resident("VmHWM", proc) - before

    def peak_memory(self):
        return resident("VmHWM", pathlib.Path("/proc", str(self.process.pid)))

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def parser(description):
    out = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("--library", type=pathlib.Path, default=LIBRARY, help="libtessera_ops.so (default: %(default)s)")
    out.add_argument("--repetitions", type=int, default=15)
    out.add_argument("--threads", type=int, help="default: LibTorch's choice")
    out.add_argument("--time-at-most", type=float, metavar="SHARE", help="exit 1 if fused / eager time exceeds this")
    out.add_argument("--memory-at-most", type=float, metavar="SHARE", help="exit 1 if fused / eager extra memory exceeds this")
    out.add_argument("--memory-of", choices=["eager", "fused"], help=argparse.SUPPRESS)  # for the fresh process that measures memory
    return out


def torch_of(args):
    """Imports torch, or exits with a message that says where it was looked for."""
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
        refs.write("5")  # resets the high-water mark
    before = resident("VmRSS")
    step()
    return resident("VmHWM") - before


def memory_in_fresh_process(name):
    environment = {**os.environ, **SMALL_BLOCKS}
    command = [sys.executable, *sys.argv, "--memory-of", name]
    return int(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def compare(args, torch, title, steps, results):
    """steps: {"eager": function, "fused": function}, each one forward and backward pass; results: the tensors that both return."""
    if args.memory_of:
        print(grown_memory(steps[args.memory_of]))
        return
    given = sum(tensor.nbytes for tensor in results)
    memory = {name: memory_in_fresh_process(name) - given for name in steps}
    times = {name: [] for name in steps}
    for repetition in range(args.repetitions + 2):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if repetition >= 2:  # the first two repetitions are warm-ups
                times[name].append(time.perf_counter() - start)
    median = {name: statistics.median(values) for name, values in times.items()}
    print(f"{title}; {torch.get_num_threads()} threads, median of {args.repetitions}, PyTorch {torch.__version__}\n")
    print("| | time, ms | fastest, ms | extra memory, MB | with results and gradients, MB |\n| --- | --- | --- | --- | --- |")
    for name in steps:
        print(f"| {name} | {1e3 * median[name]:.1f} | {1e3 * min(times[name]):.1f} | {memory[name] / 1e6:.1f} | {(memory[name] + given) / 1e6:.1f} |")
    time_share, memory_share = median["fused"] / median["eager"], memory["fused"] / memory["eager"]
    print(f"\nfused / eager: time {time_share:.2f} ({1 / time_share:.2f} times as fast), extra memory {memory_share:.3f} (1/{1 / memory_share:.0f})")
    failed = (args.time_at_most is not None and time_share > args.time_at_most) or (
        args.memory_at_most is not None and memory_share > args.memory_at_most)
    sys.exit(1 if failed else 0)


def compare_operator(description, sizes, title, make):
    """The whole script of one operator. make(torch, args) returns the inputs that need gradients, the gradients of the results, and
    {"eager": function, "fused": function}, which take the inputs and return the results as a tuple."""
    arguments = parser(description)
    for name, size in sizes.items():
        arguments.add_argument(f"--{name}", type=int, default=size)
    args = arguments.parse_args()
    torch = prepare(args)
    torch.manual_seed(0)
    inputs, gradients, operators = make(torch, args)

    def step(operator):
        results = operator(*inputs)
        return [result.detach() for result in results], torch.autograd.grad(results, inputs, gradients)

    for ours, theirs in zip(*(sum(map(list, step(operators[name])), []) for name in ("fused", "eager"))):
        difference = (ours - theirs).abs().max().item()
        assert difference < 1e-4, f"the two differ by {difference}"
    compare(args, torch, title.format(**vars(args)), {name: lambda operator=operator: step(operator) for name, operator in operators.items()},
            results=(*gradients, *inputs))  # of their sizes
