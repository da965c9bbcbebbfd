#!/usr/bin/env python3
"""Compares forward and backward passes of our operators on a GPU with PyTorch's composed operations, eager and compiled.

  scripts/compare/kernels_gpu.py
  scripts/compare/kernels_gpu.py --operators sparsify_group --dtypes bfloat16 --json kernels.json
  scripts/compare/kernels_gpu.py --device cpu                  # small shapes, to check that everything runs

The sides take turns. Times come from CUDA events (medians with quartiles). Extra memory is the peak of LibTorch's allocations during the
step, minus the memory in use before it, minus the results and the gradients of the inputs, which every side must return. The difference is
the relative Euclidean distance of our results and gradients from those of eager PyTorch in float32 on the same values.

Exit code: 0; 1 if a difference exceeds 1e-4 (bfloat16: 0.03; for two operators, more); 77 without a GPU or PyTorch.
"""
import argparse
import importlib.util
import json
import pathlib
import statistics
import sys
import time

import side_by_side
from operators import (flops_regularizer, linear_cross_entropy, linear_soft_cross_entropy, max_similarity, sparsify_group,
                       text_conditioned_loss, token_max_projection)

WARM_UP = 3  # number of untimed first runs of each side; the very first run compiles
LARGEST_DIFFERENCE = {"float32": 1e-4, "bfloat16": 0.03}
LARGER_DIFFERENCE = {
    "max_similarity": 1e-2,  # rounding decides which of several nearly equal values is the maximum and gets the gradient
    # Terms of ln_k.bias's gradient nearly cancel. Compared with float64, eager PyTorch's error is not smaller than our operator's.
    "text_conditioned_loss": 1e-3,
}


OPERATORS = {  # name -> (function, shapes); the function makes the inputs, the gradients of the results, and the operators to compare
    "sparsify_group": (sparsify_group, [{"batch": 1024, "tokens": tokens, "patches": 196, "width": 512} for tokens in (55, 76)]),
    "flops_regularizer": (flops_regularizer, [{"rows": 8192, "vocabulary": 30522}]),
    "linear_cross_entropy": (linear_cross_entropy, [{"tokens": 4096, "vocabulary": 49408, "width": 512}]),
    "linear_soft_cross_entropy": (linear_soft_cross_entropy, [{"tokens": 4096, "vocabulary": 49408, "width": 768, "words": 20}]),
    "token_max_projection": (token_max_projection, [{"batch": 64, "positions": 196, "vocabulary": 30522, "width": 512}]),
    "max_similarity": (max_similarity, [{"batch": batch, "patches": 196, "tokens": 55, "width": 256} for batch in (64, 256)]),
    "text_conditioned_loss": (text_conditioned_loss, [{"images": 256, "captions": 8, "patches": 196, "width": 512, "heads": 8,
                                                       "composed": 0}]),
}
ON_A_GPU_ALONE = {("max_similarity", "bfloat16")}
FLOAT32_ALONE = {"text_conditioned_loss"}
SMALL = {"batch": 3, "tokens": 5, "patches": 7, "positions": 6, "width": 16, "vocabulary": 40, "rows": 8, "words": 3,
         "images": 3, "captions": 2, "heads": 2}  # on the CPU


class Sides:
    """One operator with one shape and type: the inputs, and the operator of each side."""

    def __init__(self, torch, args, name, sizes, dtype):
        self.torch, self.args = torch, args
        make = OPERATORS[name][0]
        torch.manual_seed(0)
        with torch.device(args.device):
            inputs, self.gradients, operators = make(torch, argparse.Namespace(**sizes))
        self.inputs = [tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
        self.reference = operators["eager"]
        torch.compiler.reset()  # otherwise torch.compile would try to make code for several shapes
        kinds = {"eager": self.reference, "compiled": torch.compile(self.reference, dynamic=False), "ours": operators["fused"]}
        self.operators = {side: kinds[side] for side in args.sides}
        self.given = 0  # bytes of the results and gradients that each side returns

    def step(self, operator, inputs):
        """Returns the results and the gradients of the inputs."""
        results = operator(*inputs)
        gradients = [gradient.to(result.dtype) for gradient, result in zip(self.gradients, results)]
        return [result.detach() for result in results] + list(self.torch.autograd.grad(results, inputs, gradients))

    def difference(self):
        wide = [tensor.detach().float().requires_grad_() for tensor in self.inputs]
        theirs = self.step(self.reference, wide)
        ours = self.step(self.operators["ours"], self.inputs)
        self.given = sum(tensor.nbytes for tensor in ours)
        return max(((a.float() - b).norm() / b.norm()).item() for a, b in zip(ours, theirs))

    def extra_memory(self, side):
        """Returns the extra memory in bytes, or None on the CPU, where LibTorch does not count allocations."""
        if self.args.device == "cpu":
            return None
        cuda = self.torch.cuda
        cuda.synchronize()
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
        self.step(self.operators[side], self.inputs)
        cuda.synchronize()
        return cuda.max_memory_allocated() - before - self.given

    def milliseconds(self):
        """Returns the times of each side, which take turns. A side that runs out of memory has no times."""
        times = {side: [] for side in self.operators}
        for turn in range(WARM_UP + self.args.repetitions):
            for side in list(times):
                try:
                    elapsed = self.timed(self.operators[side])
                except self.torch.OutOfMemoryError:
                    del times[side]
                    continue
                if turn >= WARM_UP:
                    times[side].append(elapsed)
        return {side: [elapsed() for elapsed in values] for side, values in times.items()}

    def timed(self, operator):
        """Starts a step and returns a function that waits for the step and returns its time, so that the host need not wait in between."""
        if self.args.device == "cpu":
            begin = time.perf_counter()
            self.step(operator, self.inputs)
            seconds = time.perf_counter() - begin
            return lambda: 1e3 * seconds
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.step(operator, self.inputs)
        end.record()

        def elapsed():
            end.synchronize()
            return begin.elapsed_time(end)
        return elapsed


def measure(torch, args, name, sizes, dtype):
    """Returns one row of the table as a dictionary."""
    sides = Sides(torch, args, name, sizes, getattr(torch, dtype))
    row = {"operator": name, **sizes, "dtype": dtype, "difference": sides.difference()}
    times = sides.milliseconds()
    for side, values in times.items():
        row[side] = {"quartiles_ms": statistics.quantiles(values, n=4, method="inclusive"), "extra_bytes": sides.extra_memory(side)}
    return row


def cells(row, args):
    shape = " ".join(f"{key}={value}" for key, value in row.items() if key in SMALL)

    def milliseconds(side):
        if side not in row:
            return "does not fit"
        low, median, high = row[side]["quartiles_ms"]
        return f"{median:.3g} ({low:.3g} to {high:.3g})"

    def times_as_fast(side):
        return f"{row[side]['quartiles_ms'][1] / row['ours']['quartiles_ms'][1]:.2f}" if side in row else "-"

    def megabytes(side):
        extra = row.get(side, {}).get("extra_bytes")
        return "-" if extra is None else f"{extra / 1e6:.0f}"

    others = [side for side in args.sides if side != "ours"]
    return [row["operator"], shape, row["dtype"], *map(milliseconds, args.sides), *map(times_as_fast, others), *map(megabytes, args.sides),
            f"{row['difference']:.1e}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=side_by_side.LIBRARY, help="libtessera_ops.so (default: %(default)s)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--operators", nargs="+", default=list(OPERATORS), choices=list(OPERATORS))
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"], choices=list(LARGEST_DIFFERENCE))
    parser.add_argument("--sides", nargs="+", default=["eager", "compiled", "ours"], choices=["eager", "compiled", "ours"])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--threads", type=int, help="threads on the CPU (default: LibTorch's choice)")
    parser.add_argument("--json", type=pathlib.Path, help="also write the measurements to this file")
    args = parser.parse_args()
    args.sides = list(dict.fromkeys([*args.sides, "ours"]))
    if importlib.util.find_spec("torch") is None:
        print(f"{sys.executable} has no torch")
        sys.exit(77)
    torch = side_by_side.prepare(args)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no GPU")
        sys.exit(77)
    device = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads, small shapes"
    print(f"{device}; medians of {args.repetitions} (quartiles), PyTorch {torch.__version__}\n")
    others = [side for side in args.sides if side != "ours"]
    header = ["operator", "shape", "type", *(f"{side}, ms" for side in args.sides), *(f"times as fast as {side}" for side in others),
              *(f"{side}, extra MB" for side in args.sides), "difference"]
    print("| " + " | ".join(header) + " |\n|" + " --- |" * len(header), flush=True)
    rows, wrong = [], []
    for name in args.operators:
        for sizes in OPERATORS[name][1]:
            if args.device == "cpu":
                sizes = {key: SMALL.get(key, size) for key, size in sizes.items()}
            for dtype in args.dtypes:
                if args.device == "cpu" and (name, dtype) in ON_A_GPU_ALONE or dtype != "float32" and name in FLOAT32_ALONE:
                    continue
                rows.append(measure(torch, args, name, sizes, dtype))
                print("| " + " | ".join(cells(rows[-1], args)) + " |", flush=True)
                if not rows[-1]["difference"] <= max(LARGEST_DIFFERENCE[dtype], LARGER_DIFFERENCE.get(name, 0)):
                    wrong.append(f"{name}, {dtype}: our results differ by {rows[-1]['difference']:.1e}")
    if args.json:
        args.json.write_text(json.dumps({"device": device, "rows": rows}, indent=1) + "\n")
    for line in wrong:
        print(f"compare/kernels_gpu.py: {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
