#!/usr/bin/env python3
"""Compares tessera-index with SINDI (pyvsag), Seismic (pyseismic-lsr) and a dense index (FAISS, 512 dimensions), and prints
a Markdown table. The documents are synthetic: each has about 100 to 200 active tokens of 30,522, drawn from a Zipf-Mandelbrot distribution,
with log-normal weights; queries have 10 to 30 tokens from the same distribution. For --checked queries, all results of tessera-index are
compared with brute force (scipy) on the same rounded weights, documents and order.

  python3 -m venv /tmp/compare && /tmp/compare/bin/pip install numpy scipy pyvsag pyseismic-lsr faiss-cpu
  /tmp/compare/bin/python scripts/compare/index.py
  /tmp/compare/bin/python scripts/compare/index.py --documents 100000 --only tessera sindi

tessera-index and SINDI get one query at a time; Seismic and FAISS get all in one batch, which is faster for them. With two threads, SINDI
runs in two processes with half of the queries each. Needs 12 GB of memory for 1,000,000 documents, and a build of tessera-index. The exit
code is 1 if a result differs from brute force.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
VOCABULARY = 30522
K = 10
CHUNK = 50_000


def rows(chunk, count, least, most, seed):
    """Returns the lengths, tokens and weights of random rows, which have `least` to `most` draws of tokens each."""
    draw = np.random.default_rng([seed, chunk])
    law = 1 / (np.arange(VOCABULARY) + 50.0)
    lengths = draw.integers(least, most + 1, count)
    tokens = np.searchsorted(np.cumsum(law / law.sum()), draw.random(lengths.sum())).clip(0, VOCABULARY - 1)
    keys = np.sort(np.repeat(np.arange(count), lengths) * VOCABULARY + np.random.default_rng(7).permutation(VOCABULARY)[tokens])
    keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    weights = np.exp(draw.normal(-1, 0.7, len(keys))).clip(0.01, 3.5).astype(np.float32)
    return np.bincount(keys // VOCABULARY, minlength=count), (keys % VOCABULARY).astype(np.int32), weights


def make(count, least, most, seed):
    """Returns random rows in compressed form: indptr, tokens and weights."""
    parts = [(i, min(CHUNK, count - start), least, most, seed) for i, start in enumerate(range(0, count, CHUNK))]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        lengths, tokens, weights = zip(*pool.starmap(rows, parts))
    return np.concatenate([[0], np.cumsum(np.concatenate(lengths))]), np.concatenate(tokens), np.concatenate(weights)


def write_csr(path, vectors):
    indptr, tokens, weights = vectors
    with open(path, "wb") as file:
        for part in (np.array([len(indptr) - 1, VOCABULARY, len(tokens)]), indptr):
            part.astype(np.int64).tofile(file)
        tokens.tofile(file)
        weights.tofile(file)


def timed(function):
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def recall(found, expected):
    return np.mean([len(set(a) & set(b)) / max(1, len(b)) for a, b in zip(found, expected)])


class Tessera:
    title = "tessera-index, exact"

    def __init__(self, args, folder):
        self.program, self.folder = args.program, folder

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"compare/index.py: {done.stderr.strip()}")
        return done

    def build(self, documents):
        write_csr(self.folder / "documents.csr", documents)
        seconds = timed(lambda: self.run("build", "--overwrite", self.folder / "index", self.folder / "documents.csr"))[1]
        return seconds, sum(file.stat().st_size for file in (self.folder / "index").iterdir())

    def search(self, queries, threads):
        """Returns the results and the queries per second. Excludes the time to start the program and to open the index."""
        write_csr(self.folder / "queries.csr", queries)
        done = self.run("search", self.folder / "index", "--queries", self.folder / "queries.csr", "--k", K, "--threads", threads,
                        "--output", "tsv", "--timings")
        found = [[] for _ in range(len(queries[0]) - 1)]
        for line in done.stdout.splitlines():
            query, _, document, _ = line.split("\t")
            found[int(query)].append(int(document))
        return found, float(done.stderr.split(": ")[-1].split()[0])


class Sindi:
    title = "SINDI (pyvsag), unpruned"

    def __init__(self, args, folder):
        import pyvsag

        pyvsag.set_logger_off()
        settings = {"dtype": "sparse", "metric_type": "ip", "dim": 1024, "index_param": {
            "term_id_limit": VOCABULARY, "window_size": 50000, "doc_prune_ratio": 0.0, "use_reorder": False}}
        self.index, self.file = pyvsag.Index("sindi", json.dumps(settings)), folder / "sindi"

    def build(self, documents):
        indptr, tokens, weights = documents
        arguments = indptr.astype(np.uint32), tokens.astype(np.uint32), weights, np.arange(len(indptr) - 1)
        seconds = timed(lambda: self.index.build(*arguments))[1]
        self.index.save(str(self.file))
        return seconds, self.file.stat().st_size

    def part(self, queries, begin, end):
        indptr, tokens, weights = queries
        settings = json.dumps({"sindi": {"query_prune_ratio": 0.0, "term_prune_ratio": 0.0, "n_candidate": 0}})
        tokens = tokens.astype(np.uint32)
        bounds = [np.array([0, indptr[q + 1] - indptr[q]], np.uint32) for q in range(begin, end)]

        def search_all():
            return [self.index.knn_search(bound, tokens[indptr[q]:indptr[q + 1]], weights[indptr[q]:indptr[q + 1]], K, settings)
                    for q, bound in zip(range(begin, end), bounds)]

        found, seconds = timed(search_all)
        return [list(np.ravel(ids)) for ids, _ in found], seconds

    def search(self, queries, threads):
        count = len(queries[0]) - 1
        if threads == 1:
            found, seconds = self.part(queries, 0, count)
            return found, count / seconds
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        cuts = np.linspace(0, count, threads + 1).astype(int)
        processes = [context.Process(target=lambda i=i: results.put((i, self.part(queries, cuts[i], cuts[i + 1])))) for i in range(threads)]
        for process in processes:
            process.start()
        parts = dict(results.get() for _ in processes)
        for process in processes:
            process.join()
        return sum((parts[i][0] for i in range(threads)), []), count / max(seconds for _, seconds in parts.values())


class Seismic:
    title = "Seismic (pyseismic-lsr), approximate"

    def __init__(self, args, folder):
        import seismic

        self.seismic, self.path = seismic, folder / "seismic"

    def build(self, documents):
        indptr, tokens, weights = documents

        def build():
            data = self.seismic.SeismicDataset(VOCABULARY)
            data.add_documents_by_id([str(i) for i in range(len(indptr) - 1)], tokens.astype(np.int64), weights, indptr.astype(np.int64))
            return self.seismic.SeismicIndex.build_from_dataset(data, n_postings=3500, num_threads=2)

        self.index, seconds = timed(build)
        self.index.save(str(self.path))
        return seconds, sum(file.stat().st_size for file in self.path.parent.glob("seismic*"))

    def search(self, queries, threads):
        indptr, tokens, weights = queries
        text = self.seismic.get_seismic_string()
        count = len(indptr) - 1
        cuts = list(zip(indptr[:-1], indptr[1:]))
        arguments = (np.array([str(q) for q in range(count)], dtype=text), [tokens[a:b].astype(str).astype(text) for a, b in cuts],
                     [weights[a:b] for a, b in cuts])
        found, seconds = timed(lambda: self.index.batch_search(*arguments, k=K, query_cut=30, heap_factor=0.7, num_threads=threads))
        by_query = {int(results[0][0]): [int(document) for _, _, document in results] for results in found if results}
        return [by_query.get(q, []) for q in range(count)], count / seconds


class Dense:
    title = "FAISS IndexFlatIP, 512 dimensions"

    def __init__(self, args, folder):
        import faiss

        self.faiss, self.index = faiss, faiss.IndexFlatIP(512)

    def build(self, documents):
        draw = np.random.default_rng(3)
        seconds = 0.0
        for start in range(0, len(documents[0]) - 1, CHUNK):
            part = draw.standard_normal((min(CHUNK, len(documents[0]) - 1 - start), 512), dtype=np.float32)
            seconds += timed(lambda part=part: self.index.add(part))[1]
        return seconds, self.index.ntotal * 512 * 4

    def search(self, queries, threads):
        self.faiss.omp_set_num_threads(threads)
        vectors = np.random.default_rng(4).standard_normal((min(128, len(queries[0]) - 1), 512), dtype=np.float32)
        return None, len(vectors) / timed(lambda: self.index.search(vectors, K))[1]


SYSTEMS = {"tessera": Tessera, "sindi": Sindi, "seismic": Seismic, "dense": Dense}


def rounded(values, scale):
    """Rounds to integers, and halves up, like the index. float32 holds the results exactly."""
    return np.floor(values.astype(np.float64) * scale + 0.5).astype(np.float32)


def brute_force(documents, queries, count):
    """Returns the K best documents of the first queries as the index defines them: 8-bit weights, ties by document number."""
    import scipy.sparse

    indptr, tokens, weights = documents
    matrix = scipy.sparse.csr_matrix((rounded(weights, 255 / float(weights.max())), tokens, indptr), (len(indptr) - 1, VOCABULARY))
    best = []
    for begin, end in zip(queries[0][:count], queries[0][1:]):
        query = np.zeros(VOCABULARY, np.float32)
        query[queries[1][begin:end]] = rounded(queries[2][begin:end] / np.float64(queries[2][begin:end].max()), 255)
        products = matrix @ query
        least = np.partition(products, -K)[-K]
        candidates = np.flatnonzero(products >= max(least, 1))
        best.append(list(candidates[np.lexsort((candidates, -products[candidates]))][:K]))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--checked", type=int, default=50, help="queries compared with brute force")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/bin/tessera-index")
    args = parser.parse_args()
    if not args.program.exists():
        sys.exit(f"{args.program} does not exist: build it (ninja -C build tessera-index), or pass it with --program")
    # Some libraries print to standard output. Their output is sent to standard error, because standard output is for the table.
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # A token that is drawn twice counts once, so the ranges below lead to documents of 100 to 200 tokens and queries of 10 to 30 tokens.
    documents, queries = make(args.documents, 103, 203, 1), make(args.queries, 10, 30, 2)
    print(f"{args.documents:,} documents of {len(documents[1]) / args.documents:.0f} tokens on average, {args.queries:,} queries of "
          f"{len(queries[1]) / args.queries:.0f}; top {K}; {os.cpu_count()} cores\n", file=report, flush=True)
    table, expected, status = [], None, 0
    for name in args.only:
        with tempfile.TemporaryDirectory(prefix="compare_index_") as folder:
            system = SYSTEMS[name](args, pathlib.Path(folder))
            seconds, size = system.build(documents)
            few = queries[0][:21], queries[1][:queries[0][20]], queries[2][:queries[0][20]]
            speeds = []
            for threads in (1, 2):
                system.search(few, threads)  # warm-up
                found, speed = system.search(queries, threads)
                speeds.append(speed)
            if name == "tessera":
                expected = brute_force(documents, queries, args.checked)
                if found[:args.checked] != expected:
                    status = 1
                    print(f"{sum(a != b for a, b in zip(found, expected))} of {args.checked} results differ from brute force", file=report)
            quality = f"{100 * recall(found[:args.checked], expected):.1f} %" if expected and found else ""
            table.append((system.title, seconds, size, *speeds, quality))
            del system
    print("| index | build, s | size, MB | queries/s, one thread | queries/s, two threads | of the exact top 10 |", file=report)
    print("| --- | ---: | ---: | ---: | ---: | ---: |", file=report)
    for title, seconds, size, one, two, quality in table:
        print(f"| {title} | {seconds:.1f} | {size / 1e6:,.0f} | {one:,.0f} | {two:,.0f} | {quality} |", file=report)
    return status


if __name__ == "__main__":
    sys.exit(main())
