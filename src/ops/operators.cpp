#include "src/ops/operators.h"

#include <memory>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace tessera {

void register_operators() {
  static const std::unique_ptr<torch::Library> library = []() -> std::unique_ptr<torch::Library> {
    if (c10::Dispatcher::singleton().findSchema({"tessera::sparsify_group", ""})) return nullptr;
    auto fresh =
        std::make_unique<torch::Library>(torch::Library::FRAGMENT, "tessera", std::nullopt, __FILE__, __LINE__);
    define_sparsify_group(*fresh);
    define_flops_regularizer(*fresh);
    define_linear_cross_entropy(*fresh);
    define_max_similarity(*fresh);
    define_roi_align(*fresh);
    define_text_conditioned_pool(*fresh);
    define_token_contrast(*fresh);
    define_token_max_projection(*fresh);
    return fresh;
  }();
}

}  // namespace tessera
