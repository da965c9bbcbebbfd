#include <ATen/ATen.h>

#include "src/objectives/superclip.h"
#include <tessera/base/error.h>
#include <tessera/ops/linear_cross_entropy.h>
#include <tessera/ops/numeric.h>

namespace tessera {
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

void SuperClip::to(torch::Device device, bool non_blocking) {
  Objective::to(device, non_blocking);
}

}  // namespace tessera
