#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::index {

/// Sparse vectors over a vocabulary (embeddings of images or texts, or queries), stored as compressed rows (CSR) with an id for each row.
/// Row i is at [indptr[i], indptr[i + 1]) of `tokens` and `weights`.
struct SparseVectors {
  std::int64_t vocab_size = 0;
  std::vector<std::int64_t> indptr = {0};  // [rows + 1], never decreasing
  std::vector<std::int32_t> tokens;        // in [0, vocab_size), strictly increasing within a row
  std::vector<float> weights;              // positive and finite
  std::vector<std::string> ids;            // [rows], UTF-8 without control characters, not empty

  std::int64_t rows() const { return static_cast<std::int64_t>(indptr.size()) - 1; }
  std::int64_t count() const { return indptr.back(); }
  std::span<const std::int32_t> tokens_of(std::int64_t row) const {
    return {tokens.data() + indptr[row], size_of(row)};
  }
  std::span<const float> weights_of(std::int64_t row) const { return {weights.data() + indptr[row], size_of(row)}; }

 private:
  std::size_t size_of(std::int64_t row) const { return static_cast<std::size_t>(indptr[row + 1] - indptr[row]); }
};

/// A token with its weight.
struct TokenWeight {
  std::int32_t token = 0;
  float weight = 0;
};

/// Appends a row. The tokens may be in any order. Weights of 0 are left out. Throws UserError "PLACE: ..." for a token that is outside the
/// vocabulary or listed twice, for a weight that is negative or not finite, and for an id that is empty, is not UTF-8 or has control
/// characters.
void append_row(SparseVectors& vectors, std::string id, std::vector<TokenWeight> row, const std::string& place);

/// Normalizes rows read from a file: sorts tokens and leaves out weights of 0. `indptr` must already be valid. Throws UserError
/// like append_row(), naming `origin` and the row.
void normalize_rows(SparseVectors& vectors, const std::string& origin);

/// Returns the ids "0", "1", ... for rows that have no ids.
std::vector<std::string> numbered_ids(std::int64_t rows);

/// Scales each row to Euclidean length 1, so that products become cosines. Rows without tokens stay unchanged.
void scale_to_unit_length(SparseVectors& vectors);

/// Whether the text is UTF-8 without control characters.
bool is_readable(std::string_view text);

/// Throws UserError with a message that begins with `place` if a text cannot be a document's id, because it is empty or not readable.
void check_id(std::string_view id, const std::string& place);

}  // namespace tessera::index
