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

void check_weight(float weight, std::int32_t token, const std::string& place) {
  if (!std::isfinite(weight) || weight < 0)
    user_error(place, ": token ", token, " has the weight ", weight, ", expected a number of at least 0");
}

}  // namespace

void append_row(SparseVectors& vectors, std::string id, std::vector<TokenWeight> row, const std::string& place) {
  check_id(id, place);
  std::sort(row.begin(), row.end(), [](const TokenWeight& a, const TokenWeight& b) { return a.token < b.token; });
  for (std::size_t i = 0; i < row.size(); ++i) {
    check_weight(row[i].weight, row[i].token, place);
    if (row[i].token < 0 || row[i].token >= vectors.vocab_size)
      user_error(place, ": token ", row[i].token, " is outside the vocabulary of ", vectors.vocab_size);
    if (i > 0 && row[i].token == row[i - 1].token) user_error(place, ": token ", row[i].token, " is listed twice");
  }
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
    const auto place = [&] { return concat(origin, ": row ", r); };
    const std::int64_t begin = std::exchange(vectors.indptr[r], kept);
    row.clear();
    bool sorted = true;
    for (std::int64_t i = begin; i < vectors.indptr[r + 1]; ++i) {
      const TokenWeight each = {vectors.tokens[i], vectors.weights[i]};
      if (!(each.weight >= 0 && each.weight <= std::numeric_limits<float>::max()))
        check_weight(each.weight, each.token, place());
      if (each.token < 0 || each.token >= vectors.vocab_size)
        user_error(place(), ": token ", each.token, " is outside the vocabulary of ", vectors.vocab_size);
      sorted = sorted && (row.empty() || row.back().token < each.token);
      row.push_back(each);
    }
    if (!sorted) {
      std::sort(row.begin(), row.end(), [](const TokenWeight& a, const TokenWeight& b) { return a.token < b.token; });
      const auto twice = std::adjacent_find(
          row.begin(), row.end(), [](const TokenWeight& a, const TokenWeight& b) { return a.token == b.token; });
      if (twice != row.end()) user_error(place(), ": token ", twice->token, " is listed twice");
    }
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
