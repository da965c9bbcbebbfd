#pragma once

#include <string>

#include "src/index/sparse_files.h"

/// Readers and writers of the file formats in sparse_files.h, which also lists the errors that they throw. The rows that readers return
/// are valid.
namespace tessera::index {

SparseVectors read_safetensors(const std::string& path, const SparseFileOptions& options);
void write_safetensors(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options);

SparseVectors read_ciff(const std::string& path, const SparseFileOptions& options);
void write_ciff(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options);

/// Throws UserError unless `indptr` begins with 0, never decreases, and ends with `count`.
void check_indptr(const std::vector<std::int64_t>& indptr, std::int64_t count, const std::string& path);

/// Collects text in a buffer and writes it to a file about one megabyte at a time.
template <class File>
class Buffered {
 public:
  explicit Buffered(File& file) : file_(file) {}
  void write(std::string_view text) {
    pending_ += text;
    if (pending_.size() > kPiece) flush();
  }
  void flush() {
    file_.write(pending_);
    pending_.clear();
  }

 private:
  static constexpr std::size_t kPiece = 1 << 20;
  File& file_;
  std::string pending_;
};

}  // namespace tessera::index
