#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "src/base/printable.h"
#include "src/index/sparse_vectors.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::index {
namespace {

/// Sorts a row by tokens and checks it. Errors begin with the text that place() returns.
template <class Place>
void sort_row(std::vector<TokenWeight>& row, std::int64_t vocab_size, const Place& place) {
  bool sorted = true;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto [token, weight] = row[i];
    if (!(weight >= 0 && weight <= std::numeric_limits<float>::max()))
      user_error(place(), ": token ", token, " has the weight ", weight, ", expected a number of at least 0");
    if (token < 0 || token >= vocab_size) user_error(place(), ": token ", token, " is outside the vocabulary of ", vocab_size);
    sorted = sorted && (i == 0 || row[i - 1].token < token);
  }
  if (sorted) return;
  std::ranges::sort(row, {}, &TokenWeight::token);
  const auto twice = std::ranges::adjacent_find(row, {}, &TokenWeight::token);
  if (twice != row.end()) user_error(place(), ": token ", twice->token, " is listed twice");
}

}  // namespace

void append_row(SparseVectors& vectors, std::string id, std::vector<TokenWeight> row, const std::string& place) {
  check_id(id, place);
  sort_row(row, vectors.vocab_size, [&] { return place; });
  for (const TokenWeight& each : row) {
    if (each.weight == 0) continue;
    vectors.tokens.push_back(each.token);
    vectors.weights.push_back(each.weight);
  }
  vectors.indptr.push_back(static_cast<std::int64_t>(vectors.tokens.size()));
  vectors.ids.push_back(std::move(id));
}

void normalize_rows(SparseVectors& vectors, const std::string& origin) {
  if (vectors.vocab_size < 0 || vectors.vocab_size > std::numeric_limits<std::int32_t>::max())
    user_error(origin, ": a vocabulary of ", vectors.vocab_size, " is out of range");
  std::vector<TokenWeight> row;
  std::int64_t kept = 0;
  for (std::int64_t r = 0; r < vectors.rows(); ++r) {
    const std::int64_t begin = std::exchange(vectors.indptr[r], kept);
    row.clear();
    for (std::int64_t i = begin; i < vectors.indptr[r + 1]; ++i) row.push_back({vectors.tokens[i], vectors.weights[i]});
    sort_row(row, vectors.vocab_size, [&] { return concat(origin, ": row ", r); });
    for (const TokenWeight& each : row) {
      if (each.weight == 0) continue;
      vectors.tokens[kept] = each.token;
      vectors.weights[kept++] = each.weight;
    }
  }
  vectors.indptr.back() = kept;
  vectors.tokens.resize(kept);
  vectors.weights.resize(kept);
  for (std::int64_t r = 0; r < vectors.rows(); ++r) check_id(vectors.ids[r], concat(origin, ": row ", r));
}

std::vector<std::string> numbered_ids(std::int64_t rows) {
  std::vector<std::string> ids(rows);
  for (std::int64_t r = 0; r < rows; ++r) ids[r] = std::to_string(r);
  return ids;
}

void scale_to_unit_length(SparseVectors& vectors) {
  for (std::int64_t r = 0; r < vectors.rows(); ++r) {
    double squares = 0;
    for (const float weight : vectors.weights_of(r)) squares += static_cast<double>(weight) * weight;
    const double scale = squares > 0 ? 1 / std::sqrt(squares) : 1;
    for (std::int64_t i = vectors.indptr[r]; i < vectors.indptr[r + 1]; ++i)
      vectors.weights[i] = static_cast<float>(vectors.weights[i] * scale);
  }
}

bool is_readable(std::string_view text) {
  const bool control =
      std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
  return !control && is_utf8(text);
}

void check_id(std::string_view id, const std::string& place) {
  if (id.empty()) user_error(place, ": its id is empty");
  if (!is_readable(id))
    user_error(place, ": the id \"", printable(id), "\" has control characters, or bytes that are not UTF-8");
}

}  // namespace tessera::index
