#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <tessera/io/scratch_file.h>

/// The file that tessera-embed writes.
namespace tessera::tools {

/// Named tensors that grow by rows, and what the rows are called. Rows wait on the disk of the file's folder, not in
/// memory; the file, or files, appear with commit().
///
/// X.safetensors has all tensors, and the keys in its metadata `images`, or in X.keys.txt where the header would become too
/// long for readers. For X.npy the tensor `..._embeddings` is X.npy itself, another `..._NAME` is X.NAME.npy, and X.keys.txt
/// has the keys, a line each.
class EmbeddingFile {
 public:
  explicit EmbeddingFile(std::string path);

  /// Appends rows [B, ...]; those of one tensor are alike but for B.
  void add(const std::string& tensor, const at::Tensor& rows);
  void add_keys(const std::vector<std::string>& keys);
  bool empty() const { return tensors_.empty(); }
  /// Shapes by name, of what was added up to now.
  std::map<std::string, std::vector<std::int64_t>> shapes() const;
  /// Nothing can be added afterwards. Throws UserError.
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
