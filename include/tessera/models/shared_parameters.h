#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace tessera {

/// Parameters that several modules of one model use, such as a token table that also projects onto the vocabulary, or a codebook of both
/// towers. The text tower is built first, then the image tower, then the objective. The module that creates a parameter registers it. A
/// module that borrows the parameter keeps the tensor but registers nothing, so that the parameter has one name in files and the optimizer
/// sees it once.
class SharedParameters {
 public:
  /// The text encoder's token embeddings [V, w], `token_embedding.weight`; undefined if the model has none.
  at::Tensor token_embedding;
  /// Ids of tokens ([PAD], [CLS], ...) that are never active in an embedding over the vocabulary. The first read-out that knows these ids
  /// sets them; nullopt if no read-out knows them.
  std::optional<std::vector<std::int64_t>> special_token_ids;

  /// Returns the parameter called `name`. If it does not exist yet, creates it with make() and registers it with `owner` under the name
  /// `registered`. Throws c10::Error if the existing parameter has another shape than `sizes`.
  at::Tensor get(const std::string& name, at::IntArrayRef sizes, torch::nn::Module& owner, const std::string& registered,
                 const std::function<at::Tensor()>& make);

 private:
  std::map<std::string, at::Tensor> named_;
};

}  // namespace tessera
