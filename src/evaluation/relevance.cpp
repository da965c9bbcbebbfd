#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/evaluation/metrics/localization.h"
#include "src/models/block_inputs.h"
#include <tessera/base/error.h>
#include <tessera/evaluation/embedder.h>

namespace tessera {
namespace {

/// Feature maps of images, and the embeddings computed from these maps.
struct MappedImages {
  at::Tensor map;     // [B, N, w] or, with a class token in front, [B, 1 + N, w]
  at::Tensor global;  // [B, D]
};

/// Computes the feature maps and embeddings of images. A map is the encoder's output. If the read-out uses only the class token,
/// the other tokens of the output have no gradient, so the map is the input of the last block instead.
MappedImages mapped(DualEncoder& model, const at::Tensor& pixels) {
  Tower& tower = model.image_tower();
  if (tower.encoder().has_class_token() && !tower.readout().reads_tokens()) {
    const BlockInputs blocks;
    const at::Tensor global = model.encode_image(pixels).global;
    return {blocks.last(), global};
  }
  TowerInput input;
  {
    const c10::AutoGradMode no_gradients(false);
    input.encoded = model.encode_images(pixels);
  }
  input.encoded.tokens = input.encoded.tokens.detach().requires_grad_();
  return {input.encoded.tokens, model.encode_image(input).global};
}

}  // namespace

at::Tensor Embedder::relevance(const at::Tensor&, const TowerFeatures&) const {
  TORCH_CHECK(false, "this model's features have no gradients");
}

at::Tensor DualEncoderEmbedder::relevance(const at::Tensor& pixels, const TowerFeatures& texts) const {
  const c10::AutoGradMode gradients(true);
  const at::Device device = model_->parameters().front().device();
  const MappedImages images = mapped(*model_, pixels.to(device));
  const config::Size size = grid();
  const std::int64_t patches = size.height * size.width;
  const std::int64_t first = images.map.defined() ? images.map.size(1) - patches : -1;
  if (patches == 0 || (first != 0 && first != 1))
    user_error("this model's image encoder outputs no map of features over the image: take one with a vit or a ResNet");
  const at::Tensor cosines =
      at::cosine_similarity(images.global.to(at::kDouble), texts.global.to(device, at::kDouble), 1);
  const at::Tensor gradient = torch::autograd::grad({cosines.sum()}, {images.map}).front();
  const at::Tensor map =
      metrics::grad_cam(images.map.detach().narrow(1, first, patches), gradient.narrow(1, first, patches));
  return map.view({-1, size.height, size.width}).to(at::kCPU, at::kFloat);
}

}  // namespace tessera
