#include "tools/index/sparse_model.h"

#include "src/evaluation/embedder_views.h"
#include "src/evaluation/embedding_rows.h"
#include "src/evaluation/token_space.h"

namespace tessera::tools {
namespace {

constexpr std::int64_t kBatchSize = 64;

}  // namespace

SparseModel::SparseModel(const std::string& path)
    : loaded_(load_for_inference(path, "auto")), embedder_(loaded_.model, loaded_.tokenizer, kBatchSize) {
  require_token_space(embedder_, loaded_.path);
}

index::SparseVectors SparseModel::encode_images(const std::vector<std::string>& paths) const {
  index::SparseVectors vectors{embedder_.token_space()};
  embed_files(embedder_, paths, {kBatchSize, {}}, [&](const std::vector<std::string>& ids, const TowerFeatures& encodings) {
    append_rows(vectors, ids, encodings);
  });
  return vectors;
}

index::SparseVectors SparseModel::encode_texts(const std::vector<std::string>& texts, bool text_encoder_free) const {
  index::SparseVectors vectors{embedder_.token_space()};
  const MultiHotEmbedder by_tokens(embedder_, "--text-encoder-free");
  const Embedder& model = text_encoder_free ? static_cast<const Embedder&>(by_tokens) : embedder_;
  embed_texts(model, texts, {kBatchSize, {}}, [&](const std::vector<std::string>& ids, const TowerFeatures& encodings) {
    append_rows(vectors, ids, encodings);
  });
  embedder_.tell_of_cut_texts();
  return vectors;
}

}  // namespace tessera::tools
