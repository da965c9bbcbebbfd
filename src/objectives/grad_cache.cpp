#include "src/objectives/grad_cache.h"

namespace tessera {
namespace {

// Returns the tensors of the student's views.
std::vector<at::Tensor> tensors_of(const Features& features) {
  std::vector<at::Tensor> out;
  for (const auto* views : {&features.images, &features.texts})
    for (const auto& [name, view] : *views)
      for_each_tensor(view, [&](const at::Tensor& tensor) { out.push_back(tensor); });
  return out;
}

}  // namespace

void backward_through_chunks(const Features& leaves, const ChunkedRows& chunks,
                             const std::function<Features(std::int64_t index)>& encode,
                             const FeatureBackward& backward) {
  const std::vector<at::Tensor> whole = tensors_of(leaves);
  for (std::int64_t i = 0; i < chunks.count(); ++i) {
    const std::vector<at::Tensor> own = tensors_of(encode(i));
    std::vector<at::Tensor> outputs, gradients;
    for (std::size_t k = 0; k < own.size(); ++k) {
      if (!whole[k].defined() || !whole[k].grad().defined() || !own[k].requires_grad()) continue;
      outputs.push_back(own[k]);
      gradients.push_back(whole[k].grad().narrow(0, chunks.first(i), chunks.size(i)));
    }
    backward(outputs, gradients, i + 1 == chunks.count());
  }
}

}  // namespace tessera
