#pragma once

#include <string>
#include <vector>

#include <tessera/index/sparse_vectors.h>
#include <tessera/index/token_names.h>

namespace tessera::index {

/// Files that hold sparse vectors.
///
///   safetensors  indptr int64 [N + 1], indices int32 [nnz], values float32 [nnz], shape int64 [2] = (N, V), and the
///                rows' ids as UTF-8 bytes: id_bytes uint8 [bytes], id_indptr int64 [N + 1]
///   csr          Big-ANN's: int64 rows, columns, nnz; int64 indptr [rows + 1]; int32 indices; float32 values. The
///                ids stand in a text file beside it, FILE.ids, one a line; without one they are 0, 1, ...
///   jsonl        Seismic's: {"id": "...", "content": "...", "vector": {"token": weight, ...}} a line
///   ciff         the Common Index File Format (Lin et al. 2020): postings lists in Protocol Buffers. Weights become
///                whole numbers, times `ciff_scale`, at least 1. Tokens are sorted by their names' bytes, as Lucene does
///   text         for people, not read again: an id a line, then its tokens by falling weight, "red:1.25 circle:0.75"
struct SparseFileOptions {
  std::string format;       // one of the above; empty: by the ending .safetensors, .csr, .jsonl, .ciff or .txt
  TokenNames names;         // of jsonl, ciff and text
  double ciff_scale = 100;  // what weights are multiplied by in ciff files
};

/// Reads a file. Without names the vocabulary is as large as the file says, or as its largest token asks for; with names, as
/// large as these. Throws UserError that names the file and the row: not of this format, cut short, rows that
/// SparseVectors cannot hold.
SparseVectors read_sparse_file(const std::string& path, const SparseFileOptions& options);

/// Writes a file that appears complete or not at all; of csr, the ids are written first. Throws UserError.
void write_sparse_file(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options);

/// The formats' names, for help and checks.
const std::vector<std::string>& sparse_file_formats();

/// Reads one line of jsonl. Throws UserError "PLACE: ...".
void append_json_line(SparseVectors& vectors, const std::string& line, const TokenNames& names,
                      const std::string& place);

}  // namespace tessera::index
