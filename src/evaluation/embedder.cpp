#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/base/digest.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/localization.h"
#include "src/evaluation/metrics/slots.h"
#include "src/evaluation/metrics/sparse.h"
#include "src/evaluation/metrics/zero_shot.h"
#include "src/evaluation/token_spans.h"
#include "src/models/autocast.h"
#include "src/models/block_inputs.h"
#include "src/models/token_projection.h"
#include "src/ops/packed_weights.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/evaluation/embedder.h>

namespace tessera {
namespace {

at::Device device_of(const DualEncoder& model) {
  return model.parameters().front().device();
}

/// Switches gradients off and the precision on. On the CPU, packed weights replace autocast.
class Inference {
 public:
  Inference(at::Device device, at::ScalarType precision, PackedWeights* packed) : weights_(packed) {
    if (packed == nullptr && precision != at::kFloat) autocast_.emplace(device.type(), precision);
  }

 private:
  const c10::AutoGradMode no_gradients_{false};
  const PackedWeights::Scope weights_;
  std::optional<Autocast> autocast_;
};

TowerFeatures on_cpu(const TowerFeatures& features) {
  TORCH_CHECK(features.global.defined(), "evaluation needs global embeddings, but the model's read-out outputs none");
  return map_tensors(features, [](const at::Tensor& tensor) {
    return tensor.to(at::kCPU, tensor.is_floating_point() ? at::kFloat : tensor.scalar_type());
  });
}

// Without this check, PyTorch would report an index without saying which file is wrong, and a GPU would end the process.
void check_ids(const at::Tensor& ids, const Tokenizer& tokenizer, const Encoder& encoder) {
  const std::int64_t rows = encoder.vocab_size(), largest = ids.max().item<std::int64_t>();
  if (rows > 0 && largest >= rows)
    user_error("the tokenizer ", tokenizer.name(), " has the id ", largest, ", but the text tower's token table has only ", rows,
               " rows: the checkpoint was made with another model's vocabulary; convert its weights again with tessera-convert "
               "--settings RUN");
}

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

std::vector<std::string> Embedder::token_texts(const std::vector<std::int64_t>& ids) const {
  std::vector<std::string> texts;
  for (const std::int64_t id : ids) texts.push_back(concat(" #", id));
  return texts;
}

at::Tensor Embedder::token_activations(const TowerFeatures&, const std::vector<std::int64_t>&) const {
  TORCH_CHECK(false, "this model's patches have no activations of vocabulary tokens");
}

at::Tensor Embedder::relevance(const at::Tensor&, const TowerFeatures&) const {
  TORCH_CHECK(false, "this model's features have no gradients");
}

DualEncoderEmbedder::DualEncoderEmbedder(std::shared_ptr<DualEncoder> model, std::shared_ptr<const Tokenizer> tokenizer,
                                         std::int64_t texts_at_a_time, at::ScalarType precision)
    : model_(std::move(model)),
      tokenizer_(std::move(tokenizer)),
      texts_at_a_time_(texts_at_a_time),
      precision_(precision == at::ScalarType::Undefined ? at::kFloat : precision),
      was_training_(model_->is_training()) {
  if (precision != at::ScalarType::Undefined && device_of(*model_).is_cpu()) packed_ = std::make_unique<PackedWeights>(precision);
  model_->eval();
}

DualEncoderEmbedder::~DualEncoderEmbedder() {
  model_->train(was_training_);
}

const Preprocessing& DualEncoderEmbedder::preprocessing() const {
  return model_->settings().preprocessing;
}

config::Size DualEncoderEmbedder::grid() const {
  if (keeps_shapes(preprocessing()))
    user_error("this task needs images with the same grid of patches, but this model's images keep their shapes "
               "(model.preprocessing.resize_mode: naflex): leave the task out");
  return model_->grid();
}

TowerFeatures DualEncoderEmbedder::encode_images(const TowerInput& images, const ViewNeeds& needs) const {
  const Inference inference(device_of(*model_), precision_, packed_.get());
  return on_cpu(model_->encode_image(images.to(device_of(*model_)), needs));
}

bool DualEncoderEmbedder::takes_texts() const {
  return model_->has_text_tower() && tokenizer_ != nullptr;
}

TowerFeatures DualEncoderEmbedder::encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const {
  TORCH_CHECK(takes_texts(), "this model takes no texts");
  const Inference inference(device_of(*model_), precision_, packed_.get());
  count_cut_texts(texts);
  std::vector<TowerFeatures> batches;
  for (auto begin = texts.begin(); begin != texts.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(texts_at_a_time_, texts.end() - begin);
    const TowerInput input = tokenizer_->encode_batch({begin, end});
    check_ids(input.ids, *tokenizer_, model_->text_tower().encoder());
    batches.push_back(on_cpu(model_->encode_text(input.to(device_of(*model_)), needs)));
    begin = end;
  }
  if (!batches.empty()) return joined(batches);
  TowerFeatures none;
  none.global = at::empty({0, model_->embed_dim()});
  return none;
}

void DualEncoderEmbedder::count_cut_texts(const std::vector<std::string>& texts) const {
  for (const std::string& text : texts) {
    if (!counted_texts_.insert(fingerprint(text)).second) continue;
    const std::int64_t excess = tokenizer_->count_ids(text) - tokenizer_->context_length();
    if (excess <= 0) continue;
    ++cut_texts_;
    cut_tokens_ += excess;
  }
}

void DualEncoderEmbedder::tell_of_cut_texts() const {
  if (cut_texts_ > 0)
    log::warning(with_thousands(cut_texts_), " of ", with_thousands(std::ssize(counted_texts_)),
                 " texts are longer than the tokenizer's context of ", tokenizer_->context_length(),
                 " tokens: their ends were cut off, ", with_thousands(cut_tokens_), " tokens in total");
  take_cut_texts();
}

std::int64_t DualEncoderEmbedder::take_cut_texts() const {
  counted_texts_.clear();
  cut_tokens_ = 0;
  return std::exchange(cut_texts_, 0);
}

TowerFeatures DualEncoderEmbedder::classes(const TowerFeatures& prompts, std::int64_t per_class) const {
  const std::int64_t count = prompts.global.size(0) / per_class;
  TowerFeatures out;
  out.global = metrics::class_embeddings(prompts.global, at::arange(count, at::kLong).repeat_interleave(per_class), count);
  if (prompts.slots.defined()) out.slots = metrics::class_slots(prompts.slots.unflatten(0, {count, per_class}));
  return out;
}

std::vector<std::string> DualEncoderEmbedder::token_texts(const std::vector<std::int64_t>& ids) const {
  return tokenizer_ == nullptr ? Embedder::token_texts(ids) : tessera::token_texts(*tokenizer_, ids);
}

at::Tensor DualEncoderEmbedder::similarity(const TowerFeatures& images, const TowerFeatures& texts) const {
  if (images.global.is_sparse() || texts.global.is_sparse())
    return metrics::sparse_cosines(images.global, texts.global);
  return metrics::CosinesWith(texts.global)(images.global);
}

TowerFeatures DualEncoderEmbedder::compact(const TowerFeatures& features) const {
  TowerFeatures out = features;
  if (token_space() > 0) out.global = features.global.to_sparse();
  return out;
}

std::int64_t DualEncoderEmbedder::token_space() const {
  const auto reads_out_tokens = [](const TowerSettings& tower) {
    return tower.readout.name == "token_projection" && tower.projection.name == "none";
  };
  const ModelSettings& settings = model_->settings();
  const bool both = takes_texts() && reads_out_tokens(settings.image) && reads_out_tokens(*settings.text);
  return both ? model_->embed_dim() : 0;
}

at::Tensor DualEncoderEmbedder::token_activations(const TowerFeatures& images, const std::vector<std::int64_t>& ids) const {
  if (token_space() == 0) return Embedder::token_activations(images, ids);
  const c10::AutoGradMode no_gradients(false);
  const at::Device device = device_of(*model_);
  auto& readout = dynamic_cast<TokenProjection&>(model_->image_tower().readout());
  return readout.activations(images.tokens.to(device), at::tensor(ids, at::kLong).to(device)).to(at::kCPU, at::kFloat);
}

at::Tensor DualEncoderEmbedder::relevance(const at::Tensor& pixels, const TowerFeatures& texts) const {
  const c10::AutoGradMode gradients(true);
  const at::Device device = device_of(*model_);
  const MappedImages images = mapped(*model_, pixels.to(device));
  const config::Size size = grid();
  const std::int64_t patches = size.height * size.width;
  const std::int64_t first = images.map.defined() ? images.map.size(1) - patches : -1;
  if (patches == 0 || (first != 0 && first != 1))
    user_error("this model's image encoder outputs no map of features over the image: take one with a vit or a ResNet");
  const at::Tensor cosines = at::cosine_similarity(images.global.to(at::kDouble), texts.global.to(device, at::kDouble), 1);
  const at::Tensor gradient = torch::autograd::grad({cosines.sum()}, {images.map}).front();
  const at::Tensor map = metrics::grad_cam(images.map.detach().narrow(1, first, patches), gradient.narrow(1, first, patches));
  return map.view({-1, size.height, size.width}).to(at::kCPU, at::kFloat);
}

TowerFeatures joined(const std::vector<TowerFeatures>& batches) {
  std::vector<Features> chunks(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) chunks[i].images["image"] = batches[i];
  return map_tensors(joined(chunks).image(), [](const at::Tensor& tensor) { return tensor.is_sparse() ? tensor.coalesce() : tensor; });
}

}  // namespace tessera
