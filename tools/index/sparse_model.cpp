#include "tools/index/sparse_model.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "tools/model_inputs.h"
#include <tessera/base/error.h>
#include <tessera/evaluation/multi_hot_embedder.h>
#include <tessera/evaluation/token_space.h>

namespace tessera::tools {
namespace {

/// Appends dense encodings [B, V] with the ids of these rows.
void append_rows(index::SparseVectors& vectors, const at::Tensor& encodings, const std::vector<std::string>& ids,
                 std::size_t first) {
  const at::Tensor rows = encodings.to(at::kFloat).contiguous();
  for (std::int64_t r = 0; r < rows.size(0); ++r) {
    const float* const weights = rows.const_data_ptr<float>() + r * rows.size(1);
    std::vector<index::TokenWeight> row;
    for (std::int64_t token = 0; token < rows.size(1); ++token)
      if (weights[token] != 0) row.push_back({static_cast<std::int32_t>(token), weights[token]});
    const std::string& id = ids[first + static_cast<std::size_t>(r)];
    index::append_row(vectors, id, std::move(row), id);
  }
}

}  // namespace

SparseModel::SparseModel(const std::string& path, const std::string& device, std::int64_t batch_size)
    : loaded_(load_for_inference(path, device)),
      batch_size_(batch_size),
      embedder_(loaded_.model, loaded_.tokenizer, batch_size) {
  require_token_space(embedder_, loaded_.path);
}

index::TokenNames SparseModel::names() const {
  std::string lines;
  for (const std::string& name : vocabulary_names(*embedder_.tokenizer(), embedder_.token_space()))
    lines += name + "\n";
  return {lines, loaded_.path};
}

index::SparseVectors SparseModel::encode_images(const std::vector<std::string>& paths) const {
  index::SparseVectors vectors{embedder_.token_space()};
  const auto at_once = static_cast<std::size_t>(batch_size_);
  for (std::size_t first = 0; first < paths.size(); first += at_once) {
    std::vector<at::Tensor> pixels;
    for (std::size_t i = first; i < std::min(first + at_once, paths.size()); ++i)
      pixels.push_back(read_picture(paths[i], embedder_.preprocessing()));
    append_rows(vectors, embedder_.images(at::stack(pixels), {}).global, paths, first);
  }
  return vectors;
}

index::SparseVectors SparseModel::encode_texts(const std::vector<std::string>& texts, bool text_free) const {
  index::SparseVectors vectors{embedder_.token_space()};
  const std::vector<std::string> ids = index::numbered_ids(static_cast<std::int64_t>(texts.size()));
  const MultiHotEmbedder by_tokens(embedder_, "--text-free");
  const Embedder& model = text_free ? static_cast<const Embedder&>(by_tokens) : embedder_;
  const auto at_once = static_cast<std::size_t>(batch_size_);
  for (std::size_t first = 0; first < texts.size(); first += at_once) {
    const std::vector<std::string> some(
        texts.begin() + static_cast<std::ptrdiff_t>(first),
        texts.begin() + static_cast<std::ptrdiff_t>(std::min(first + at_once, texts.size())));
    append_rows(vectors, model.texts(some, {}).global, ids, first);
  }
  return vectors;
}

}  // namespace tessera::tools
