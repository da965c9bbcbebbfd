#include "src/evaluation/word_maps.h"

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/patch_scores.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/objectives/objective.h>
#include <tessera/objectives/patch_weights.h>

namespace tessera {
namespace {

std::vector<std::string> texts_of_words(const std::vector<TextWord>& words) {
  std::vector<std::string> texts;
  for (const TextWord& word : words) texts.push_back(word.text);
  return texts;
}

TowerFeatures on_device(const TowerFeatures& features, const at::Device& device) {
  return map_tensors(features, [&](const at::Tensor& tensor) { return tensor.to(device); });
}

std::shared_ptr<const PatchWeights> comparing_part(Objective& objective) {
  for (const std::shared_ptr<torch::nn::Module>& module : objective.modules(/*include_self=*/true))
    if (auto part = std::dynamic_pointer_cast<const PatchWeights>(module)) return part;
  return nullptr;
}

}  // namespace

WordMaps::WordMaps(const Embedder& embedder, const EvaluationContext& context) : embedder_(embedder) {
  if (embedder.tokenizer() == nullptr) user_error("words: the model has no tokenizer, so its texts have no words");
  if (context.loss != nullptr) use_objective(context.loss->objective());
  if (!maps_ && context.pool) {
    pooled_.emplace(conditioned(embedder, context, "words", "attention", "cosine"));
    use_pool();
  }
  if (!maps_ && !use_slots() && !use_token_space()) use_cosines();
}

bool WordMaps::are_trained(const EvaluationContext& context) try {
  return context.pool != nullptr || (context.loss != nullptr && comparing_part(*context.loss->objective()) != nullptr);
} catch (const UserError&) {
  return false;
}

void WordMaps::use_objective(const std::shared_ptr<Objective>& objective) {
  const std::shared_ptr<const PatchWeights> weights = comparing_part(*objective);
  if (!weights) return;
  const auto parameters = objective->parameters();
  const at::Device device = parameters.empty() ? at::Device(at::kCPU) : parameters.front().device();
  const bool by_token = weights->by_token();
  needs_ = {.tokens = true};
  text_needs_ = {.tokens = by_token, .input_ids = true};
  rule_ = concat(weights->describe_weights(), by_token ? " The tokens of a word are averaged." : "");
  maps_ = [this, weights, device, by_token](const TowerFeatures& image, config::Size, const TowerFeatures& text,
                                            const std::vector<TextWord>& words) {
    if (!by_token) {
      const TowerFeatures alone = embed_texts(embedder_, texts_of_words(words));
      const TowerFeatures repeated =
          map_tensors(image, [&](const at::Tensor& tensor) { return tensor.repeat_interleave(std::ssize(words), 0); });
      return weights->patch_weights(on_device(repeated, device), on_device(alone, device)).squeeze(1).to(at::kCPU, at::kFloat);
    }
    const at::Tensor weights_of_tokens =
        weights->patch_weights(on_device(image, device), on_device(text, device))[0].to(at::kCPU, at::kFloat);
    std::vector<at::Tensor> maps;
    for (const TextWord& word : words) maps.push_back(weights_of_tokens.index_select(0, at::tensor(word.tokens, at::kLong)).mean(0));
    return at::stack(maps);
  };
}

void WordMaps::use_pool() {
  needs_ = {.tokens = true};
  rule_ = "The attention of the word alone, as a text of its own, to each patch in the objective's pool.";
  maps_ = [this](const TowerFeatures& image, config::Size grid, const TowerFeatures&, const std::vector<TextWord>& words) {
    const TowerFeatures names = embed_texts(*pooled_, texts_of_words(words));
    return conditioned_patches(*pooled_, names, /*attention=*/true, "words").of(image, grid)[0].t().to(at::kFloat).contiguous();
  };
}

bool WordMaps::use_slots() {
  const ViewNeeds slots{.slots = true, .attention = true};
  const Preprocessing& preprocessing = embedder_.preprocessing();
  if (keeps_shapes(preprocessing)) return false;
  const config::Size size = preprocessing.image_size;
  const TowerFeatures blank = embedder_.encode_images(at::zeros({1, 3, size.height, size.width}, at::kByte), slots);
  const TowerFeatures word = embed_texts(embedder_, {"a"}, {.slots = true});
  if (!blank.slots.defined() || !blank.attention.defined() || !word.slots.defined()) return false;
  check_same_slots("words", blank.slots, word.slots);
  needs_ = slots;
  rule_ =
      "The attention of the image's slots to each patch, added up with the cosines of the image's slots with the same slots of the word "
      "alone, as a text of its own; negative cosines count as 0.";
  maps_ = [this](const TowerFeatures& image, config::Size, const TowerFeatures&, const std::vector<TextWord>& words) {
    const at::Tensor names = embed_texts(embedder_, texts_of_words(words), {.slots = true}).slots;
    const at::Tensor cosines = (metrics::unit_rows(names) * metrics::unit_rows(image.slots)).sum(2).clamp_min(0);  // [words, L]
    return at::matmul(cosines, image.attention[0].to(cosines.scalar_type())).to(at::kFloat);
  };
  return true;
}

bool WordMaps::use_token_space() {
  if (embedder_.token_space() == 0) return false;
  needs_ = {.tokens = true};
  rule_ = "The activations of the word's tokens at each patch (Chen et al. 2023, eq. 4), averaged over the tokens.";
  maps_ = [this](const TowerFeatures& image, config::Size, const TowerFeatures& text, const std::vector<TextWord>& words) {
    std::vector<at::Tensor> maps;
    for (const TextWord& word : words) {
      const at::Tensor ids = text.input.ids[0].index_select(0, at::tensor(word.tokens, at::kLong));
      maps.push_back(embedder_.token_activations(image, to_vector<std::int64_t>(ids))[0].mean(1));
    }
    return at::stack(maps);
  };
  return true;
}

void WordMaps::use_cosines() {
  needs_ = {.dense = true};
  rule_ = "The cosine of each patch with the word alone, as a text of its own.";
  note_ =
      "the model comes without an objective on words and patches (sparc, filip, pacl, gloria, flair): the maps compare patches with each "
      "word as a text of its own, which shows little if only whole images were trained; grad_cam shows where an image's similarity with "
      "a whole text comes from";
  maps_ = [this](const TowerFeatures& image, config::Size grid, const TowerFeatures&, const std::vector<TextWord>& words) {
    const TowerFeatures names = embed_texts(embedder_, texts_of_words(words));
    return cosines_of_patches(names.global, LastBlock::plain, "words").of(image, grid)[0].t().to(at::kFloat).contiguous();
  };
}

ImageWords WordMaps::of(TowerFeatures image, const std::string& text, std::int64_t most) const {
  const TowerFeatures features = embed_texts(embedder_, {text}, text_needs_);
  std::vector<TextWord> words = words_of(text, tokens_of(embedder_, features.input, 0), /*cut=*/true);
  if (std::ssize(words) > most) words.resize(static_cast<std::size_t>(most));
  ImageWords out{.grid = grid_of_image(embedder_, image), .maps = {}};
  if (words.empty()) return out;
  const at::Tensor weights = maps_(image, out.grid, features, words);
  check_patch_grid("words", weights, out.grid, "");
  for (std::size_t w = 0; w < words.size(); ++w)
    out.maps.push_back({words[w], to_vector<float>(weights[static_cast<std::int64_t>(w)])});
  return out;
}

}  // namespace tessera
