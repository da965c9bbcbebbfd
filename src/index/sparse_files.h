#pragma once

#include <string>
#include <vector>

#include "src/index/sparse_vectors.h"
#include "src/index/token_names.h"

namespace tessera::index {

/// Files of sparse vectors.
///
///   safetensors  indptr int64 [N + 1], indices int32 [nnz], values float32 [nnz], shape int64 [2] = (N, V), and the
///                rows' ids as UTF-8 bytes: id_bytes uint8 [bytes], id_indptr int64 [N + 1]
///   csr          Big-ANN's: int64 rows, columns, nnz; int64 indptr [rows + 1]; int32 indices; float32 values. The
///                ids are in a text file FILE.ids next to it, one per line; without it they are 0, 1, ...
///   jsonl        Seismic's: one {"id": "...", "content": "...", "vector": {"token": weight, ...}} per line
///   ciff         the Common Index File Format (Lin et al. 2020): postings lists in Protocol Buffers. Weights are multiplied
///                by `ciff_scale` and rounded to whole numbers of at least 1. Tokens are sorted by their names' bytes, as in Lucene
///   text         for people to read; Tessera can write this format but not read it. Each line has an id and its tokens by
///                decreasing weight, "red:1.25 circle:0.75"
struct SparseFileOptions {
  std::string format;       // one of the formats above; empty: chosen by the extension .safetensors, .csr, .jsonl, .ciff or .txt
  TokenNames names;         // token names for jsonl, ciff and text
  double ciff_scale = 100;  // the factor that weights are multiplied by in ciff files
};

/// Reads a file. The vocabulary size is the number of names. Without names it is the size stored in the file, or else the smallest
/// size that includes all tokens. Throws UserError naming the file and the row if the file does not have this format, is truncated,
/// or has rows that SparseVectors cannot hold.
SparseVectors read_sparse_file(const std::string& path, const SparseFileOptions& options);

/// Writes a file atomically; for csr, the file of ids is written first. Throws UserError.
void write_sparse_file(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options);

/// The names of the formats, for help and checks.
const std::vector<std::string>& sparse_file_formats();

/// Parses one line of a jsonl file and appends its row. Throws UserError "PLACE: ...".
void append_json_line(SparseVectors& vectors, const std::string& line, const TokenNames& names,
                      const std::string& place);

}  // namespace tessera::index
