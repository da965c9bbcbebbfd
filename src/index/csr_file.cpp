// Reads and writes Big-ANN's format of sparse vectors (Simhadri et al. 2024, sparse track of the competition).
#include <array>
#include <bit>
#include <filesystem>
#include <limits>

#include "src/index/formats.h"
#include "src/io/mapped_file.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

static_assert(std::endian::native == std::endian::little, "csr files are little-endian");

using CsrHeader = std::array<std::int64_t, 3>;  // rows, columns, nnz

std::string ids_path(const std::string& path) {
  return path + ".ids";
}

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

template <class T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

SparseVectors read_csr(const std::string& path) {
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
  vectors.ids = read_ids(ids_path(path), rows);
  normalize_rows(vectors, path);
  return vectors;
}

void write_csr(const std::string& path, const SparseVectors& vectors) {
  std::string ids;
  for (const std::string& id : vectors.ids) ids += id + "\n";
  io::write_file(ids_path(path), ids);
  io::AtomicFile file(path);
  const CsrHeader header = {vectors.rows(), vectors.vocab_size, vectors.count()};
  file.write(header.data(), sizeof(header));
  file.write(bytes_of(vectors.indptr));
  file.write(bytes_of(vectors.tokens));
  file.write(bytes_of(vectors.weights));
  file.commit();
}

}  // namespace tessera::index
