#!/usr/bin/env python3
"""Compares forward and backward passes of our operators on a GPU with PyTorch's composed operations, eager and compiled.

  scripts/compare/kernels_gpu.py
  scripts/compare/kernels_gpu.py --operators sparsify_group --dtypes bfloat16 --json kernels.json
  scripts/compare/kernels_gpu.py --device cpu                  # small shapes, to check that everything runs

The sides take turns. Times come from CUDA events (medians with quartiles). Extra memory is the peak of LibTorch's allocations during the
step, minus the memory in use before it, minus the results and the gradients of the inputs, which every side must return. The difference is
the relative Euclidean distance of our results and gradients from those of eager PyTorch in float32 on the same values. The share of the
roofline is the shortest time that the GPU allows, divided by our time: for each pass, the time to read each input and write each output
once, or to compute the matrix products, whichever is longer; the script measures the rates of a triad (a = b + s c) and of a product.
--recorded adds the times of steps that are recorded as CUDA graphs.

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
    ("text_conditioned_loss", "bfloat16"): 0.2,  # the same, with the rounding of bfloat16
}


def flops_regularizer_added(torch, args):
    """The regularizer of an encoding that has another consumer, whose gradient is dense; autograd adds the two gradients."""
    inputs, gradients, operators = flops_regularizer(torch, args)

    def with_consumer(operator):
        return lambda encoding: (*operator(encoding), encoding.view_as(encoding))
    return inputs, [*gradients, torch.randn(args.rows, args.vocabulary)], {side: with_consumer(each) for side, each in operators.items()}


def flops_regularizer_written(torch, args):
    """The regularizer with a gradient of which all rows are written."""
    inputs, gradients, operators = flops_regularizer(torch, args)
    return inputs, gradients, {**operators, "fused": lambda encoding: (torch.ops.tessera.flops_regularizer(encoding, dense_gradient=True),)}


# The FLOPs and the bytes of the forward and the backward pass, as tools/bench/kernel_cases.cpp counts them. An element has `size` bytes.
def cost_of_sparsify_group(size, batch, tokens, patches, width):
    product, text, image = 2 * batch * tokens * patches * width, size * batch * tokens * width, size * batch * patches * width
    statistics_of_tokens = 12 * batch * tokens
    return (2 * product, 2 * text + image + statistics_of_tokens), (5 * product, 3 * text + 2 * image + statistics_of_tokens)


def cost_of_flops_regularizer(size, rows, vocabulary):
    return (0, (size * rows + 4) * vocabulary), (0, (4 + size) * vocabulary)


def cost_of_flops_regularizer_written(size, rows, vocabulary):
    return (0, (size * rows + 4) * vocabulary), (0, (4 + size * rows) * vocabulary)


def cost_of_flops_regularizer_added(size, rows, vocabulary):
    return (0, (size * rows + 4) * vocabulary), (0, (4 + size + 2 * size * rows) * vocabulary)


def cost_of_linear_cross_entropy(size, tokens, vocabulary, width, words=0):
    inputs, targets = size * (tokens + vocabulary) * width, tokens * (12 * words if words else 8)
    return (6 * tokens * vocabulary * width, 2 * inputs + targets), (0, 2 * inputs)


def cost_of_token_max_projection(size, batch, positions, vocabulary, width):
    inputs, entries = size * (batch * positions + vocabulary) * width, batch * vocabulary
    return (2 * batch * positions * width * vocabulary, inputs + 12 * entries), (0, 2 * inputs + 16 * entries)


def cost_of_max_similarity(size, batch, patches, tokens, width):
    inputs, between = size * batch * (patches + tokens) * width, batch * batch * (8 + 2 * (patches + tokens))
    return (2 * batch * batch * patches * tokens * width, inputs + between), (0, 2 * inputs + between)


COSTS = {"sparsify_group": cost_of_sparsify_group, "flops_regularizer": cost_of_flops_regularizer,
         "flops_regularizer_written": cost_of_flops_regularizer_written, "flops_regularizer_added": cost_of_flops_regularizer_added,
         "linear_cross_entropy": cost_of_linear_cross_entropy, "linear_soft_cross_entropy": cost_of_linear_cross_entropy,
         "token_max_projection": cost_of_token_max_projection, "max_similarity": cost_of_max_similarity}
OPERATORS = {  # name -> (function, shapes); the function makes the inputs, the gradients of the results, and the operators to compare
    "sparsify_group": (sparsify_group, [{"batch": 1024, "tokens": tokens, "patches": 196, "width": 512} for tokens in (55, 76)]),
    "flops_regularizer": (flops_regularizer, [{"rows": 8192, "vocabulary": 30522}]),
    "flops_regularizer_written": (flops_regularizer_written, [{"rows": 8192, "vocabulary": 30522}]),
    "flops_regularizer_added": (flops_regularizer_added, [{"rows": 8192, "vocabulary": 30522}]),
    "linear_cross_entropy": (linear_cross_entropy, [{"tokens": 4096, "vocabulary": 49408, "width": 512}]),
    "linear_soft_cross_entropy": (linear_soft_cross_entropy, [{"tokens": 4096, "vocabulary": 49408, "width": 768, "words": 20}]),
    "token_max_projection": (token_max_projection, [{"batch": 64, "positions": 196, "vocabulary": 30522, "width": 512}]),
    "max_similarity": (max_similarity, [{"batch": batch, "patches": 196, "tokens": 55, "width": 256} for batch in (64, 256)]),
    "text_conditioned_loss": (text_conditioned_loss, [{"images": 256, "captions": 8, "patches": 196, "width": 512, "heads": 8,
                                                       "composed": 0}]),
}
ON_A_GPU_ALONE = {("max_similarity", "bfloat16"), ("text_conditioned_loss", "bfloat16")}
SMALL = {"batch": 3, "tokens": 5, "patches": 7, "positions": 6, "width": 16, "vocabulary": 40, "rows": 8, "words": 3,
         "images": 3, "captions": 2, "heads": 2}  # on the CPU


class Sides:
    """One operator with one shape and type: the inputs, and the operator of each side."""

    def __init__(self, torch, args, name, sizes, dtype):
        self.torch, self.args = torch, args
        self.written = name == "flops_regularizer_written"  # eager PyTorch's gradient is a view that repeats one row
        make = OPERATORS[name][0]
        torch.manual_seed(0)
        with torch.device(args.device):
            inputs, self.gradients, operators = make(torch, argparse.Namespace(**sizes))
        self.inputs = [tensor.detach().to(dtype).requires_grad_() for tensor in inputs]
        self.reference = operators["eager"]
        torch.compiler.reset()  # otherwise torch.compile would try to make code for several shapes
        kinds = {"eager": self.reference, "compiled": torch.compile(self.reference, dynamic=False), "ours": operators["fused"]}
        self.operators = {side: kinds[side] for side in args.sides}
        self.cast = {}  # types of the results -> the gradients in these types
        self.given = 0  # bytes of the results and gradients that each side returns

    def step(self, operator, inputs):
        """Returns the results and the gradients of the inputs."""
        results = operator(*inputs)
        types = tuple(result.dtype for result in results)
        if types not in self.cast:  # converted once, because the conversion is no part of the operator
            self.cast[types] = [gradient.to(dtype) for gradient, dtype in zip(self.gradients, types)]
        found = self.torch.autograd.grad(results, inputs, self.cast[types])
        return [result.detach() for result in results] + [each.contiguous() if self.written else each for each in found]

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

    def plain(self):
        """Returns each side's step as a function without arguments."""
        return {side: lambda operator=operator: self.step(operator, self.inputs) for side, operator in self.operators.items()}

    def recorded(self):
        """Returns the steps recorded as CUDA graphs. A step that cannot be recorded is left out."""
        cuda, replays = self.torch.cuda, {}
        for side, step in self.plain().items():
            try:
                aside = cuda.Stream()
                aside.wait_stream(cuda.current_stream())
                with cuda.stream(aside):
                    step()
                cuda.current_stream().wait_stream(aside)
                graph = cuda.CUDAGraph()
                with cuda.graph(graph):
                    step()
                replays[side] = graph.replay
            except RuntimeError as error:
                print(f"{side} cannot be recorded: {str(error).splitlines()[0]}", file=sys.stderr)
        return replays

    def milliseconds(self, steps):
        """Returns the times of each side, which take turns. A side that runs out of memory has no times."""
        times = {side: [] for side in steps}
        for turn in range(WARM_UP + self.args.repetitions):
            for side in list(times):
                try:
                    elapsed = self.timed(steps[side])
                except self.torch.OutOfMemoryError:
                    del times[side]
                    continue
                if turn >= WARM_UP:
                    times[side].append(elapsed)
        return {side: [elapsed() for elapsed in values] for side, values in times.items()}

    def timed(self, step):
        """Starts a step and returns a function that waits for the step and returns its time, so that the host need not wait in between."""
        if self.args.device == "cpu":
            begin = time.perf_counter()
            step()
            seconds = time.perf_counter() - begin
            return lambda: 1e3 * seconds
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()

        def elapsed():
            end.synchronize()
            return begin.elapsed_time(end)
        return elapsed


def measure_ceilings(torch, args):
    """Returns the bytes per second of a triad over large arrays, and the FLOP/s of large products by type."""
    on_cpu = args.device == "cpu"

    def fastest(step):
        times = []
        for _ in range(3 if on_cpu else 10):
            begin = time.perf_counter()
            step()
            if not on_cpu:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return min(times)
    a, b, c = (torch.ones(1 << (22 if on_cpu else 28), device=args.device) for _ in range(3))
    ceilings = {"bytes_per_second": 3 * a.nbytes / fastest(lambda: torch.add(b, c, alpha=3.0, out=a)), "flops_per_second": {}}
    side = 512 if on_cpu else 8192
    for dtype in args.dtypes:
        x = torch.arange(side * side, dtype=torch.float32, device=args.device).sin_().view(side, side).to(getattr(torch, dtype))
        y, out = x.t().contiguous(), torch.empty_like(x)
        ceilings["flops_per_second"][dtype] = 2 * side**3 / fastest(lambda: torch.mm(x, y, out=out))
    return ceilings


def add_roofline(row, ceilings, name, sizes, dtype):
    """Adds the passes' FLOPs and bytes to a row, and the shortest time that the ceilings allow."""
    passes = COSTS[name]({"float32": 4, "bfloat16": 2}[dtype], **sizes)
    row["flops"], row["bytes"] = ([each[i] for each in passes] for i in range(2))
    row["roofline_ms"] = 1e3 * sum(max(flops / ceilings["flops_per_second"][dtype], moved / ceilings["bytes_per_second"])
                                   for flops, moved in passes)


def measure(torch, args, name, sizes, dtype, ceilings):
    """Returns one row of the table as a dictionary."""
    sides = Sides(torch, args, name, sizes, getattr(torch, dtype))
    row = {"operator": name, **sizes, "dtype": dtype, "difference": sides.difference()}
    if name in COSTS:
        add_roofline(row, ceilings, name, sizes, dtype)
    for side, values in sides.milliseconds(sides.plain()).items():
        row[side] = {"quartiles_ms": statistics.quantiles(values, n=4, method="inclusive"), "extra_bytes": sides.extra_memory(side)}
    if args.recorded:
        for side, values in sides.milliseconds(sides.recorded()).items():
            row.setdefault(side, {})["recorded_ms"] = statistics.median(values)
    return row


def cells(row, args):
    shape = " ".join(f"{key}={value}" for key, value in row.items() if key in SMALL)

    def milliseconds(side):
        if "quartiles_ms" not in row.get(side, {}):
            return "does not fit"
        low, median, high = row[side]["quartiles_ms"]
        return f"{median:.3g} ({low:.3g} to {high:.3g})"

    def times_as_fast(side):
        return f"{row[side]['quartiles_ms'][1] / row['ours']['quartiles_ms'][1]:.2f}" if "quartiles_ms" in row.get(side, {}) else "-"

    def megabytes(side):
        extra = row.get(side, {}).get("extra_bytes")
        return "-" if extra is None else f"{extra / 1e6:.0f}"

    def recorded(side):
        return f"{row[side]['recorded_ms']:.3g}" if "recorded_ms" in row.get(side, {}) else "-"

    others = [side for side in args.sides if side != "ours"]
    share = f"{row['roofline_ms'] / row['ours']['quartiles_ms'][1]:.0%}" if "roofline_ms" in row else "-"
    return [row["operator"], shape, row["dtype"], *map(milliseconds, args.sides), *map(times_as_fast, others), share,
            *(map(recorded, args.sides) if args.recorded else []), *map(megabytes, args.sides), f"{row['difference']:.1e}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, default=side_by_side.LIBRARY, help="libtessera_ops.so (default: %(default)s)")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--operators", nargs="+", default=list(OPERATORS), choices=list(OPERATORS))
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"], choices=list(LARGEST_DIFFERENCE))
    parser.add_argument("--sides", nargs="+", default=["eager", "compiled", "ours"], choices=["eager", "compiled", "ours"])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--recorded", action="store_true", help="also measure steps that are recorded as CUDA graphs")
    parser.add_argument("--threads", type=int, help="threads on the CPU (default: LibTorch's choice)")
    parser.add_argument("--json", type=pathlib.Path, help="also write the measurements to this file")
    args = parser.parse_args()
    args.sides = list(dict.fromkeys([*args.sides, "ours"]))
    args.recorded = args.recorded and args.device == "cuda"
    if importlib.util.find_spec("torch") is None:
        print(f"{sys.executable} has no torch")
        sys.exit(77)
    torch = side_by_side.prepare(args)
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no GPU")
        sys.exit(77)
    device = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads, small shapes"
    ceilings = measure_ceilings(torch, args)
    products = ", ".join(f"{flops / 1e12:.3g} TFLOP/s in {dtype}" for dtype, flops in ceilings["flops_per_second"].items())
    print(f"{device}; medians of {args.repetitions} (quartiles), PyTorch {torch.__version__}")
    print(f"Ceilings: {ceilings['bytes_per_second'] / 1e9:.4g} GB/s, {products}\n")
    others = [side for side in args.sides if side != "ours"]
    header = ["operator", "shape", "type", *(f"{side}, ms" for side in args.sides), *(f"times as fast as {side}" for side in others),
              "of roofline", *(f"{side}, recorded, ms" for side in args.sides if args.recorded),
              *(f"{side}, extra MB" for side in args.sides), "difference"]
    print("| " + " | ".join(header) + " |\n|" + " --- |" * len(header), flush=True)
    rows, wrong = [], []
    for name in args.operators:
        for sizes in OPERATORS[name][1]:
            if args.device == "cpu":
                sizes = {key: SMALL.get(key, size) for key, size in sizes.items()}
            for dtype in args.dtypes:
                if args.device == "cpu" and (name, dtype) in ON_A_GPU_ALONE:
                    continue
                rows.append(measure(torch, args, name, sizes, dtype, ceilings))
                print("| " + " | ".join(cells(rows[-1], args)) + " |", flush=True)
                larger = LARGER_DIFFERENCE.get((name, dtype), LARGER_DIFFERENCE.get(name, 0))
                if not rows[-1]["difference"] <= max(LARGEST_DIFFERENCE[dtype], larger):
                    wrong.append(f"{name}, {dtype}: our results differ by {rows[-1]['difference']:.1e}")
                if args.json:  # after every row, because a time limit may end the script
                    args.json.write_text(json.dumps({"device": device, "ceilings": ceilings, "rows": rows}, indent=1) + "\n")
    for line in wrong:
        print(f"compare/kernels_gpu.py: {line}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
