#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/io/mapped_file.h"

/// The output file of tessera-embed.
namespace tessera::tools {

/// Writes named tensors row by row, with keys for the rows. Rows are collected in scratch files in the output folder, not in memory;
/// commit() writes the output.
/// An output file X.safetensors contains all tensors, with the keys in its metadata `images`; if the header would become too long for
/// readers, the keys are in X.keys.txt instead. An output X.npy has several files: X.npy contains the tensor whose name ends in
/// `_embeddings`, X.NAME.npy contains the tensor whose name ends in `_NAME`, and X.keys.txt has one key per line.
class EmbeddingFile {
 public:
  explicit EmbeddingFile(std::string path);

  /// Appends rows [B, ...]. All calls for one tensor must agree in type and in every dimension except B.
  void add(const std::string& tensor, const at::Tensor& rows);
  void add_keys(const std::vector<std::string>& keys);
  bool empty() const { return tensors_.empty(); }
  /// Returns the shape of each tensor, by name. The first dimension is the number of rows added so far.
  std::map<std::string, std::vector<std::int64_t>> shapes() const;
  /// Writes the output; nothing can be added afterwards. Throws UserError if it cannot be written.
  void commit(const std::map<std::string, std::string>& metadata);

 private:
  struct Part {
    std::unique_ptr<io::ScratchFile> file;
    std::vector<std::int64_t> shape;
    at::ScalarType dtype;
  };
  at::Tensor whole(const Part& part) const;
  void write_safetensors(std::map<std::string, std::string> metadata);
  void write_npy(const std::string& name, const Part& part) const;
  void write_keys();
  std::string beside(const std::string& ending) const;

  std::string path_;
  std::string folder_;
  std::map<std::string, Part> tensors_;
  std::unique_ptr<io::ScratchFile> keys_;
};

}  // namespace tessera::tools
