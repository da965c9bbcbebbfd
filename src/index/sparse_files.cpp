#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>

#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/index/formats.h"
#include "src/index/sparse_files.h"
#include "src/io/mapped_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

// Writes one line for each row.
void write_lines(const std::string& path, const SparseVectors& vectors, const std::function<std::string(std::int64_t row)>& line) {
  io::AtomicFile file(path);
  Buffered out(file);
  for (std::int64_t r = 0; r < vectors.rows(); ++r) out.write(line(r) + "\n");
  out.flush();
  file.commit();
}

void write_text(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options) {
  write_lines(path, vectors, [&](std::int64_t r) {
    const auto tokens = vectors.tokens_of(r);
    const auto weights = vectors.weights_of(r);
    std::vector<std::size_t> order(tokens.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
    std::string line = vectors.ids[r] + "\t";
    for (const std::size_t i : order) {
      char weight[32];
      std::snprintf(weight, sizeof(weight), ":%.4g", weights[i]);
      line += (line.back() == '\t' ? "" : " ") + options.names.name(tokens[i]) + weight;
    }
    return line;
  });
}

std::string id_of(const nlohmann::json& line, const std::string& place) {
  const auto id = line.find("id");
  if (id == line.end()) user_error(place, ": no \"id\"");
  if (id->is_string()) return id->get<std::string>();
  if (id->is_number_integer()) return id->dump();
  user_error(place, ": \"id\" is neither a text nor a whole number");
}

SparseVectors read_json_lines(const std::string& path, const SparseFileOptions& options) {
  std::ifstream in(path, std::ios::binary);
  if (!in) user_error(path, ": cannot read: ", std::strerror(errno));
  SparseVectors vectors;
  vectors.vocab_size = options.names.size();
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number)
    if (!strip(line).empty()) append_json_line(vectors, line, options.names, concat(path, ":", number));
  if (in.bad()) user_error(path, ": cannot read: ", std::strerror(errno));
  return vectors;
}

void write_json_lines(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options) {
  write_lines(path, vectors, [&](std::int64_t r) {
    nlohmann::ordered_json vector = nlohmann::ordered_json::object();
    const auto tokens = vectors.tokens_of(r);
    const auto weights = vectors.weights_of(r);
    for (std::size_t i = 0; i < tokens.size(); ++i) vector[options.names.name(tokens[i])] = weights[i];
    return nlohmann::ordered_json{{"id", vectors.ids[r]}, {"content", ""}, {"vector", std::move(vector)}}.dump();
  });
}

static_assert(std::endian::native == std::endian::little, "csr files are little-endian");

using CsrHeader = std::array<std::int64_t, 3>;  // rows, columns, nnz

std::vector<std::string> read_ids(const std::string& path, std::int64_t rows) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return numbered_ids(rows);
  std::vector<std::string> ids = split(io::read_file(path), '\n');
  if (!ids.empty() && ids.back().empty()) ids.pop_back();
  if (static_cast<std::int64_t>(ids.size()) != rows)
    user_error(path, ": ", ids.size(), " ids for ", rows, " rows; expected one per line");
  return ids;
}

template <class T>
std::vector<T> take(std::string_view& bytes, std::int64_t count) {
  std::vector<T> out(static_cast<std::size_t>(count));
  std::copy_n(bytes.data(), out.size() * sizeof(T), reinterpret_cast<char*>(out.data()));
  bytes.remove_prefix(out.size() * sizeof(T));
  return out;
}

template <class Values>
std::string_view bytes_of(const Values& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])};
}

SparseVectors read_csr(const std::string& path, const SparseFileOptions&) {
  const io::MappedFile file(path);
  std::string_view bytes = file.bytes();
  CsrHeader header{};
  if (bytes.size() < sizeof(header)) user_error(path, ": not a csr file: only ", bytes.size(), " bytes long");
  std::copy_n(bytes.data(), sizeof(header), reinterpret_cast<char*>(header.data()));
  bytes.remove_prefix(sizeof(header));
  const auto [rows, columns, count] = header;
  const auto limit = static_cast<std::int64_t>(bytes.size());  // checked first, so that the sum below cannot overflow
  const bool sound = rows >= 0 && rows < limit && count >= 0 && count < limit && columns >= 0 &&
                     columns <= std::numeric_limits<std::int32_t>::max() && 8 * (rows + 1) + 8 * count == limit;
  if (!sound)
    user_error(path, ": not a csr file, or truncated: it announces ", rows, " rows, ", columns, " columns and ", count,
               " weights, and has ", bytes.size(), " bytes for them");
  SparseVectors vectors;
  vectors.vocab_size = columns;
  vectors.indptr = take<std::int64_t>(bytes, rows + 1);
  check_indptr(vectors.indptr, count, path);
  vectors.tokens = take<std::int32_t>(bytes, count);
  vectors.weights = take<float>(bytes, count);
  vectors.ids = read_ids(path + ".ids", rows);
  normalize_rows(vectors, path);
  return vectors;
}

void write_csr(const std::string& path, const SparseVectors& vectors, const SparseFileOptions&) {
  std::string ids;
  for (const std::string& id : vectors.ids) ids += id + "\n";
  io::write_file(path + ".ids", ids);
  io::AtomicFile file(path);
  const CsrHeader header = {vectors.rows(), vectors.vocab_size, vectors.count()};
  file.write(bytes_of(header));
  file.write(bytes_of(vectors.indptr));
  file.write(bytes_of(vectors.tokens));
  file.write(bytes_of(vectors.weights));
  file.commit();
}

SparseVectors refuse_text(const std::string& path, const SparseFileOptions&) {
  user_error(path, ": the format text is write-only");
}

struct SparseFormat {
  const char* name;
  const char* ending;
  SparseVectors (*read)(const std::string& path, const SparseFileOptions& options);
  void (*write)(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options);
};
constexpr std::array<SparseFormat, 5> kFormats = {{{"safetensors", ".safetensors", read_safetensors, write_safetensors},
                                                   {"csr", ".csr", read_csr, write_csr},
                                                   {"jsonl", ".jsonl", read_json_lines, write_json_lines},
                                                   {"ciff", ".ciff", read_ciff, write_ciff},
                                                   {"text", ".txt", refuse_text, write_text}}};

const SparseFormat& format_of(const std::string& path, const SparseFileOptions& options) {
  const std::string ending = std::filesystem::path(path).extension().string();
  for (const SparseFormat& known : kFormats)
    if (options.format.empty() ? ending == known.ending : options.format == known.name) return known;
  if (!options.format.empty()) user_error("unknown format ", options.format, suggestion(options.format, sparse_file_formats()));
  user_error(path, ": its extension does not belong to a format of sparse vectors; name a format: ", join_names(sparse_file_formats()));
}

}  // namespace

const std::vector<std::string>& sparse_file_formats() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const SparseFormat& known : kFormats) out.emplace_back(known.name);
    return out;
  }();
  return names;
}

void check_indptr(const std::vector<std::int64_t>& indptr, std::int64_t count, const std::string& path) {
  const bool sound =
      !indptr.empty() && indptr.front() == 0 && indptr.back() == count && std::is_sorted(indptr.begin(), indptr.end());
  if (!sound) user_error(path, ": the starts of its rows do not rise from 0 to the number of weights, ", count);
}

void append_json_line(SparseVectors& vectors, const std::string& line, const TokenNames& names,
                      const std::string& place) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    user_error(place, ": expected {\"id\": ..., \"vector\": {\"token\": weight}}, got ", printable(line, 60));
  const auto vector = json.find("vector");
  if (vector == json.end() || !vector->is_object()) user_error(place, ": no \"vector\" of {\"token\": weight}");
  std::vector<TokenWeight> row;
  for (const auto& [name, weight] : vector->items()) {
    if (!weight.is_number())
      user_error(place, ": the weight of ", printable(name, 60), " is ", printable(weight.dump(), 60),
                 ", expected a number");
    row.push_back({names.at(name, place), weight.get<float>()});
    // If tokens have no names, they are numbers, and the largest number determines the size of the vocabulary.
    if (names.are_numbers()) vectors.vocab_size = std::max(vectors.vocab_size, std::int64_t{row.back().token} + 1);
  }
  append_row(vectors, id_of(json, place), std::move(row), place);
}

SparseVectors read_sparse_file(const std::string& path, const SparseFileOptions& options) {
  SparseVectors vectors = format_of(path, options).read(path, options);
  if (options.names.are_numbers()) return vectors;
  if (vectors.vocab_size > options.names.size())
    user_error(path, ": its vocabulary of ", vectors.vocab_size, " is larger than the ", options.names.size(),
               " tokens that have names");
  vectors.vocab_size = options.names.size();
  return vectors;
}

void write_sparse_file(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options) {
  format_of(path, options).write(path, vectors, options);
}

}  // namespace tessera::index
