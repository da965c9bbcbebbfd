#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/index/sparse_vectors.h"
#include "src/index/token_names.h"
#include "src/io/mapped_file.h"
#include <tessera/io/atomic_file.h>

/// The files of tessera-embed --to, which search engines read.
namespace tessera::tools {

/// Writes embeddings as a search engine reads them in bulk (docs/serving.md has the commands that load the files):
///
///   opensearch     lines for POST INDEX/_bulk; the body for PUT INDEX is in NAME.index.json
///   elasticsearch  the same, with this engine's types of fields
///   qdrant         lines, each the body of PUT /collections/NAME/points; the body for PUT /collections/NAME is in NAME.collection.json
///   milvus         a list of rows in JSON, for its bulk import
///   faiss          an IndexFlatIP for faiss.read_index; row i is line i of NAME.keys.txt. Dense embeddings only
///
/// A document has the field `key`, for a text also `text`, and `embedding` (dense) or `tokens` (sparse). The documents of qdrant and milvus
/// are numbered from 0, because these engines take no texts as ids.
class EngineFile {
 public:
  /// Throws UserError if faiss is asked for sparse embeddings.
  EngineFile(const std::string& engine, std::string path, bool sparse);

  static const std::vector<std::string>& engines();

  /// Appends dense rows, float32 [B, D], of length 1. `texts` is empty for images.
  void add(const std::vector<std::string>& keys, const std::vector<std::string>& texts, const at::Tensor& rows);
  /// Appends sparse rows. `names` are the names of the tokens, of which opensearch and elasticsearch search the index.
  void add(const index::SparseVectors& rows, const std::vector<std::string>& texts, const index::TokenNames& names);
  std::int64_t rows() const { return rows_; }
  /// Writes the files. Nothing can be added afterwards. Throws UserError.
  void commit();

 private:
  void add_document(const std::string& key, const std::string* text, const std::string& vector);
  void flush();
  std::string beside(const std::string& ending) const;
  std::string settings() const;
  void write_faiss();

  std::string engine_, path_;
  bool sparse_;
  std::int64_t rows_ = 0, width_ = 0;
  std::string pending_;  // documents that belong to the next line of a qdrant file
  std::int64_t pending_rows_ = 0;
  std::optional<io::AtomicFile> file_;
  std::unique_ptr<io::ScratchFile> vectors_, keys_;  // of faiss
};

}  // namespace tessera::tools
