#!/usr/bin/env python3
"""Measures which near duplicates `tessera-data dedup` finds among synthetic embeddings, beside a brute-force comparison of all rows.

  scripts/check/near_duplicates.py                          # a million rows, brute force for 20,000 of them
  scripts/check/near_duplicates.py --queries 0              # brute force for all rows
  scripts/check/near_duplicates.py --nearest 1 2 4 --clusters 1000

A fifth of the rows are noisy copies of other rows, with cosines from 0.85 to 1; the others lie around 2,000 directions of different
frequency. With --keep first, a row is a near duplicate if a row before it has at least the cosine --threshold. The script prints, for each
value of --nearest, the time and the peak memory of the command, the share of the near duplicates that it finds, and the number of rows that
it removes without reason; the exit code is 1 if there are any. Rows whose greatest cosine is within 1e-5 of the threshold do not count.
Needs torch and the built programs.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARGIN = 1e-5


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def synthetic(args):
    torch.manual_seed(args.seed)
    copies = args.rows // 5
    directions = unit(torch.randn(2000, args.width))
    frequency = 1 / torch.arange(1, len(directions) + 1)
    chosen = torch.multinomial(frequency, args.rows - copies, replacement=True)
    rows = unit(directions[chosen] + 0.8 * unit(torch.randn(args.rows - copies, args.width)))
    of = torch.randint(len(rows), (copies,))
    cosine = 0.85 + 0.15 * torch.rand(copies, 1)
    noise = torch.randn(copies, args.width)
    noise = unit(noise - (noise * rows[of]).sum(1, keepdim=True) * rows[of])
    rows = torch.cat([rows, cosine * rows[of] + (1 - cosine.square()).sqrt() * noise])
    return rows[torch.randperm(len(rows))].contiguous()


def write_npy(path, rows):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows.shape[0]}, {rows.shape[1]}), }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        file.write(rows.numpy().tobytes())


def greatest_before(rows, queries):
    """Returns each query's greatest cosine with a row before it."""
    out = torch.full((len(queries),), -2.0)
    for begin in range(0, len(queries), 1000):
        some = queries[begin:begin + 1000]
        for first in range(0, int(some.max()), 50_000):
            cosines = rows[some] @ rows[first:first + 50_000].T
            later = torch.arange(first, first + cosines.shape[1])[None] >= some[:, None]
            out[begin:begin + 1000] = torch.maximum(out[begin:begin + 1000], cosines.masked_fill_(later, -2).max(dim=1).values)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--threshold", type=float, default=0.95)
    parser.add_argument("--clusters", type=int, default=0, help="default: that of the command")
    parser.add_argument("--nearest", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--queries", type=int, default=20_000, help="rows to compare by brute force; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/near_duplicates"))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/bin/tessera-data")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = synthetic(args)
    write_npy(args.out / "rows.npy", rows)
    queries = torch.randperm(args.rows)[:args.queries].sort().values if args.queries else torch.arange(args.rows)
    begin = time.monotonic()
    cosines = greatest_before(unit(rows), queries)
    print(f"{args.rows:,} rows of {args.width} numbers; brute force for {len(queries):,} of them took {time.monotonic() - begin:.0f} s on "
          f"{os.cpu_count()} cores; {int((cosines >= args.threshold).sum()):,} of them have a cosine of at least {args.threshold}\n")
    clear = (cosines - args.threshold).abs() > MARGIN
    expected = (cosines >= args.threshold) & clear
    print("| `--nearest` | seconds | CPU seconds | peak memory, MiB | removed | found | removed without reason |\n" + "| --- |" * 1 + " --- |" * 6)
    wrong = 0
    for nearest in args.nearest:
        kept = args.out / "kept.txt"
        command = [args.program, "dedup", "--embeddings", args.out / "rows.npy", "--out", kept, "--threshold", str(args.threshold), "--keep",
                   "first", "--nearest", str(nearest), *(["--clusters", str(args.clusters)] if args.clusters else [])]
        begin = time.monotonic()
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(map(str, command))} failed")
        seconds = time.monotonic() - begin
        removed = torch.ones(args.rows, dtype=torch.bool)
        removed[torch.tensor([int(line) for line in kept.read_text().split()])] = False
        found = removed[queries]
        without_reason = int((found & ~expected & clear).sum())
        wrong += without_reason
        print(f"| {nearest} | {seconds:.0f} | {usage.ru_utime + usage.ru_stime:.0f} | {usage.ru_maxrss / 1024:.0f} | {int(removed.sum()):,} | "
              f"{100 * int((found & expected).sum()) / max(1, int(expected.sum())):.2f} % | {without_reason} |", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
