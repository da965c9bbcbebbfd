#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/io/mapped_file.h"

namespace tessera {

/// Returns the keys that tessera-embed wrote for the rows of a file, in its metadata or beside it; empty if there are none. Throws
/// UserError if their number is not `rows`.
std::vector<std::string> embedding_keys(const std::string& path, const std::map<std::string, std::string>& metadata, std::int64_t rows);

/// A matrix of embeddings [N, D] in a file of tessera-embed, or in another .npy or .safetensors file. The file stays mapped into memory, so
/// only the rows that are used need memory.
class StoredEmbeddings {
 public:
  /// `tensor` is the name of the matrix in a safetensors file. Throws UserError naming the file and what it contains.
  StoredEmbeddings(const std::string& path, const std::string& tensor);

  std::int64_t size() const { return all_.size(0); }
  std::int64_t width() const { return all_.size(1); }
  const std::vector<std::string>& keys() const { return keys_; }
  /// Returns rows [begin, begin + count), or the rows with these indices (int64 [n]), in float32 and scaled to length 1. Rows that are not
  /// finite become zero.
  at::Tensor unit_rows(std::int64_t begin, std::int64_t count) const;
  at::Tensor unit_rows(const at::Tensor& indices) const;

 private:
  void find_matrix(const std::string& path, const std::string& tensor);
  void use(std::string_view data, std::int64_t rows, std::int64_t columns, at::ScalarType type);

  const io::MappedFile file_;
  at::Tensor all_;  // a view of the file
  std::vector<std::string> keys_;
};

}  // namespace tessera
