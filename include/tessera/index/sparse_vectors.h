#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::index {

/// Rows of sparse vectors over a vocabulary, compressed (CSR), with a name for each row: encodings of pictures or texts, or
/// queries. The weights of row i stand at [indptr[i], indptr[i + 1]) of `tokens` and `weights`.
struct SparseVectors {
  std::int64_t vocab_size = 0;
  std::vector<std::int64_t> indptr = {0};  // [rows + 1], never falling
  std::vector<std::int32_t> tokens;        // [0, vocab_size), strictly increasing within a row
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

/// Appends a row; its tokens may come in any order. Weights of 0 are left out. Throws UserError "PLACE: ...": a token outside
/// the vocabulary or twice, a weight that is negative or not finite, an id that is empty or no readable text.
void append_row(SparseVectors& vectors, std::string id, std::vector<TokenWeight> row, const std::string& place);

/// Brings rows as they come out of a file into the form above: sorts tokens, leaves out weights of 0. `indptr` must be sound
/// already. Throws UserError naming `origin` and the row, as append_row does.
void normalize_rows(SparseVectors& vectors, const std::string& origin);

/// "0", "1", ...: names of rows that have none.
std::vector<std::string> numbered_ids(std::int64_t rows);

/// Gives each row its length 1 (Euclidean): products become cosines. Rows without tokens stay as they are.
void scale_to_unit_length(SparseVectors& vectors);

}  // namespace tessera::index
