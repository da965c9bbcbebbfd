#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace tessera {

/// Parameters that several modules of one model use: a token table that also projects onto the vocabulary, a codebook of
/// both towers. The text tower is built first, then the image tower, then the objective. Who makes a parameter registers
/// it; who borrows it holds the tensor and registers nothing, so that files keep one name for it and the optimizer sees
/// it once.
class SharedParameters {
 public:
  /// The text encoder's table [V, w], `token_embedding.weight`; undefined: a model without one.
  at::Tensor token_embedding;
  /// Ids of that table that no encoding has active ([PAD], [CLS], ...), as the first read-out that knows them says;
  /// nothing: no read-out does.
  std::optional<std::vector<std::int64_t>> special_token_ids;

  /// The parameter called `name`: the one there is, or what make() gives, registered with `owner` under `registered`.
  /// Throws c10::Error when the one there is has another shape than `sizes`.
  at::Tensor get(const std::string& name, at::IntArrayRef sizes, torch::nn::Module& owner, const std::string& registered,
                 const std::function<at::Tensor()>& make);

 private:
  std::map<std::string, at::Tensor> named_;
};

}  // namespace tessera
