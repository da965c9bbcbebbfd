#include "src/objectives/superclip.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include <tessera/base/error.h>
#include <tessera/ops/linear_cross_entropy.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

constexpr double kEpsilon = 1e-5;

// Returns the mean of each image's real patches; 0 for an image without a real patch.
at::Tensor mean_of_patches(const at::Tensor& patches, const at::Tensor& mask) {
  if (!mask.defined()) return patches.mean(1);
  const at::Tensor count = mask.sum(1, /*keepdim=*/true).clamp_min(1).to(patches.scalar_type());
  return patches.masked_fill(~mask.unsqueeze(2), 0).sum(1) / count;
}

}  // namespace

struct SuperClipHead::Block : torch::nn::Module {
  Block(std::int64_t width, std::int64_t hidden)
      : norm(register_module("norm", std::make_shared<LayerNorm>(width, kEpsilon))),
        fc(register_module("fc", torch::nn::Linear(width, hidden))),
        proj(register_module("proj", torch::nn::Linear(hidden, width))) {}
  at::Tensor forward(const at::Tensor& x) { return x + proj(at::gelu(fc(norm->forward(x)))); }

  std::shared_ptr<LayerNorm> norm;
  torch::nn::Linear fc, proj;
};

SuperClipHead::SuperClipHead(std::int64_t width, std::int64_t vocab_size, std::int64_t layers, std::int64_t mlp_ratio)
    : linear_(width, vocab_size) {
  const auto list = register_module("blocks", torch::nn::ModuleList());
  for (std::int64_t i = 0; i < layers; ++i) {
    blocks_.push_back(std::make_shared<Block>(width, mlp_ratio * width));
    list->push_back(blocks_.back());
  }
  norm_ = register_module("norm", std::make_shared<LayerNorm>(width, kEpsilon));
  register_module("linear", linear_);
}

at::Tensor SuperClipHead::hidden(const at::Tensor& patches, const at::Tensor& mask) {
  at::Tensor x = mean_of_patches(patches, mask);
  for (const auto& block : blocks_) x = block->forward(x);
  return norm_->forward(x);
}

namespace {

void check_range(const at::Tensor& words, const at::Tensor& real, std::int64_t vocab_size) {
  const at::Tensor bad = real & (words.lt(0) | words.ge(vocab_size));
  if (!words.is_cpu())  // the message does not name the bad id, because reading the id would need a synchronization
    at::_assert_async(bad.any().logical_not(), "superclip: a caption holds an id that is not in the vocabulary");
  else if (bad.any().item<bool>())
    TORCH_CHECK(false, "superclip: a caption holds the id ", words.masked_select(bad)[0].item<std::int64_t>(),
                ", but the vocabulary is 0..", vocab_size - 1);
}

}  // namespace

WordBags word_bags(const at::Tensor& ids, const at::Tensor& mask, std::int64_t vocab_size,
                   const std::vector<std::int64_t>& ignored_ids) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK((ids.dim() == 2 || ids.dim() == 3) && ids.scalar_type() == at::kLong,
              "superclip: text_ids must be int64 [B, L] or [B, K, L], got ", ids.scalar_type(), " ", ids.sizes());
  TORCH_CHECK(!mask.defined() || (mask.sizes() == ids.sizes() && mask.scalar_type() == at::kBool),
              "superclip: text_mask must be bool ", ids.sizes(), " as text_ids is, got ", mask.scalar_type(), " ",
              mask.sizes());
  const at::Tensor words = ids.flatten(1);
  at::Tensor real = mask.defined() ? mask.flatten(1) : at::ones_like(words, at::kBool);
  check_range(words, real, vocab_size);
  for (const std::int64_t ignored : ignored_ids) real = real & words.ne(ignored);
  // Replaces padding and ignored ids by the id vocab_size, which sorts last. Also appends this id once to each row.
  const at::Tensor none = at::full({words.size(0), 1}, vocab_size, words.options());
  const at::Tensor sorted = std::get<0>(at::cat({words.masked_fill(~real, vocab_size), none}, 1).sort(1));
  const at::Tensor again = sorted.slice(1, 1) == sorted.slice(1, 0, -1);
  const at::Tensor first = at::cat({at::ones_like(none, at::kBool), ~again}, 1);
  return {sorted, first & sorted.lt(vocab_size), vocab_size};
}

at::Tensor count_words(const WordBags& bags) {
  const at::NoGradGuard no_grad;
  const at::Tensor words = bags.ids.masked_fill(~bags.used, bags.vocab_size).flatten();
  at::Tensor counts = at::zeros({bags.vocab_size + 1}, words.options());
  counts.scatter_add_(0, words, at::ones_like(words));
  counts[bags.vocab_size].fill_(bags.ids.size(0));
  return counts;
}

at::Tensor word_weights(const WordBags& bags, const at::Tensor& document_count, const at::Tensor& caption_count,
                        bool idf) {
  const at::NoGradGuard no_grad;
  at::Tensor weights = bags.used.to(at::kDouble);
  if (idf) {
    const at::Tensor others = (caption_count - document_count).to(at::kDouble);  // number of images without the word, exact in int64
    const at::Tensor of_words = (others / (document_count + 1).to(at::kDouble)).log1p();
    weights = weights * of_words.index({bags.ids.clamp_max(bags.vocab_size - 1)});
  }
  const at::Tensor sum = weights.sum(1, /*keepdim=*/true);
  return weights / sum.masked_fill(sum == 0, 1);
}

namespace {

// Returns the width that the setting or the model defines. If both define it, they must agree.
std::int64_t width_of(const SuperClipSettings& settings, std::int64_t of_model) {
  if (!settings.width && of_model == 0)
    user_error("objective.width: the model does not report the width of the image encoder's tokens: set it");
  if (settings.width && of_model > 0 && *settings.width != of_model)
    user_error("objective.width is ", *settings.width, ", but the image encoder's tokens are ", of_model,
               " wide: leave it out");
  return settings.width.value_or(of_model);
}

std::int64_t vocab_size_of(const SuperClipSettings& settings, std::int64_t of_model) {
  if (!settings.vocab_size && of_model == 0)
    user_error("objective.vocab_size: the model has no text encoder with a vocabulary: set it");
  const std::int64_t size = settings.vocab_size.value_or(of_model);
  if (size < of_model)
    user_error("objective.vocab_size is ", size, ", but the text encoder has ", of_model,
               " token ids: leave it out to follow the text encoder");
  for (const std::int64_t id : settings.ignored_ids)
    if (id >= size) user_error("objective.ignored_ids: ", id, " is not in the vocabulary 0..", size - 1);
  return size;
}

}  // namespace

SuperClip::SuperClip(const SuperClipSettings& settings, const ObjectiveContext& context)
    : settings_(settings), vocab_size_(vocab_size_of(settings, context.vocab_size)) {
  head_ = register_module("head", std::make_shared<SuperClipHead>(width_of(settings, context.image_width), vocab_size_,
                                                                  settings.layers, settings.mlp_ratio));
  document_count_ = register_buffer("document_count", at::zeros({vocab_size_}, at::kLong));
  caption_count_ = register_buffer("caption_count", at::zeros({}, at::kLong));
}

Needs SuperClip::needs() const {
  return {.images = {{settings_.image_view, {.encoder_tokens = true}}},
          .texts = {{settings_.text_view, {.input_ids = true}}}};
}

WordBags SuperClip::bags_of(const TowerInput& captions) const {
  TORCH_CHECK(captions.ids.defined(), "superclip: the ids of ", settings_.text_view, " are missing");
  const at::Device device = document_count_.device();
  const auto there = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.to(device, tensor.scalar_type(), /*non_blocking=*/true) : tensor;
  };
  return word_bags(there(captions.ids), there(captions.mask), vocab_size_, settings_.ignored_ids);
}

void SuperClip::add_counts(at::Tensor own, const ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  group.all_reduce(own);
  document_count_.add_(own.narrow(0, 0, vocab_size_));
  caption_count_.add_(own[vocab_size_]);
}

void SuperClip::before_step(const std::vector<const Batch*>& batches, const StepContext& step) {
  at::Tensor own;
  for (const Batch* batch : batches) {
    const auto captions = batch->texts.find(settings_.text_view);
    TORCH_CHECK(captions != batch->texts.end(), "superclip: the batch has no view named ", settings_.text_view);
    const at::Tensor counts = count_words(bags_of(captions->second));
    own = own.defined() ? own + counts : counts;
  }
  add_counts(own, step.group);
}

Losses SuperClip::forward(const Features& features, const StepContext& context) {
  const NoAutocast no_autocast;
  const TowerFeatures& image = features.image(settings_.image_view);
  const at::Tensor& patches = image.encoder_tokens;
  TORCH_CHECK(patches.defined() && patches.dim() == 3 && patches.size(1) > 0,
              "superclip: the tokens of ", settings_.image_view, " before the projection are missing");
  const WordBags bags = bags_of(features.text(settings_.text_view).input);
  TORCH_CHECK(bags.ids.size(0) == patches.size(0), "superclip: there are ", patches.size(0), " images, but captions of ",
              bags.ids.size(0));
  if (context.training && !context.counted) add_counts(count_words(bags), context.group);
  const at::Tensor weights = word_weights(bags, document_count_, caption_count_, settings_.idf);

  const at::Tensor hidden = head_->hidden(to_compute(patches), image.mask);
  std::optional<std::int64_t> tile;
  if (settings_.chunk) tile = *settings_.chunk * patches.size(0);
  const torch::nn::Linear& linear = head_->linear();
  Losses losses;
  losses.total = linear_soft_cross_entropy(hidden, linear->weight, bags.ids, weights, linear->bias,
                                           at::Reduction::Mean, tile);
  const at::Tensor weighty = weights > 0;
  losses.statistics = {{"words_per_image", weighty.sum(1).to(at::kFloat).mean()},
                       {"images_without_words", weighty.any(1).logical_not().to(at::kFloat).mean()}};
  return losses;
}

void SuperClip::restore_counts(const at::Tensor& documents, const at::Tensor& captions) {
  document_count_.set_data(documents.to(document_count_.device()));
  caption_count_.set_data(captions.to(caption_count_.device()));
}

void SuperClip::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  const at::Tensor documents = document_count_.clone(), captions = caption_count_.clone();
  Objective::to(device, dtype, non_blocking);
  restore_counts(documents, captions);
}

void SuperClip::to(torch::Dtype dtype, bool non_blocking) {
  const at::Tensor documents = document_count_.clone(), captions = caption_count_.clone();
  Objective::to(dtype, non_blocking);
  restore_counts(documents, captions);
}

}  // namespace tessera
