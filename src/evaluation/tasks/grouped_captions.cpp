#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/tasks/grouped_captions.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "src/evaluation/metrics/point_sets.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/token_spans.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

/// Fills in one caption's mask [L] and segments [S, L]. A token belongs to the phrase that contains the token's first byte. Returns
/// the number of tokens that cover text.
std::int64_t mark(const std::vector<std::array<std::int64_t, 2>>& spans,
                  const std::vector<std::array<std::int64_t, 2>>& phrases, const at::Tensor& mask,
                  const at::Tensor& segments) {
  auto real = mask.accessor<bool, 1>();
  auto inside = segments.accessor<bool, 2>();
  std::int64_t count = 0;
  for (std::size_t t = 0; t < spans.size(); ++t) {
    const auto token = static_cast<std::int64_t>(t);
    real[token] = spans[t][1] > spans[t][0];
    count += real[token] ? 1 : 0;
    for (std::size_t s = 0; s < phrases.size(); ++s)
      inside[static_cast<std::int64_t>(s)][token] =
          real[token] && spans[t][0] >= phrases[s][0] && spans[t][0] < phrases[s][1];
  }
  return count;
}

/// Returns the text tower's features of single tokens: `tokens` if k-means will cluster the tokens, and otherwise `attention`, the tokens'
/// weights in the tower's own groups. Throws UserError if the tower does not output these features.
TowerFeatures features_of_tokens(const Embedder& embedder, const std::vector<std::string>& texts, bool k_means) {
  TowerFeatures features = embed_texts(embedder, texts, {.tokens = k_means, .attention = !k_means, .input_ids = true});
  const auto fits = [&](const at::Tensor& tensor, std::int64_t dimension) {
    return tensor.defined() && tensor.size(dimension) == features.input.ids.size(1);
  };
  if (k_means && !fits(features.tokens, 1))
    user_error("token_group_iou.by: this model's text tower outputs no features of single tokens: take one without ",
               "groups, as text_transformer is, or by: groups");
  if (!k_means && !fits(features.attention, 2))
    user_error("token_group_iou: this model's text tower has no groups of tokens: take one whose read-out outputs ",
               "attention, as groups after text_group_encoder does, or by: k_means");
  return features;
}

/// Uses k-means to cluster the tokens that cover text. `tokens` is [L, W], and `mask` [L] is true for tokens that cover text. Returns
/// [K, L], 1 where a token belongs to a cluster and 0 elsewhere.
at::Tensor clustered(const at::Tensor& tokens, const at::Tensor& mask, std::int64_t clusters) {
  at::Tensor out = at::zeros({clusters, mask.size(0)});
  const at::Tensor places = mask.nonzero().squeeze(1);
  if (places.size(0) > 0)
    out.index_put_({metrics::k_means(tokens.index_select(0, places), clusters), places}, at::ones({}));
  return out;
}

}  // namespace

std::vector<PhrasedCaption> phrased_captions(const Sample& sample) {
  std::vector<PhrasedCaption> out;
  for (std::size_t c = 0; c < sample.captions.size(); ++c) {
    PhrasedCaption caption{sample.captions[c], {}};
    for (const ObjectAnnotation& object : sample.objects)
      if (object.caption == static_cast<std::int64_t>(c) && object.span[1] > object.span[0])
        caption.phrases.push_back(object.span);
    if (!caption.phrases.empty()) out.push_back(std::move(caption));
  }
  return out;
}

GroupedCaptions grouped_captions(const std::vector<EvaluationSample>& samples, const Embedder& embedder,
                                 const TokenGroupSettings& settings) {
  const bool k_means = settings.by == "k_means";
  GroupedCaptions out;
  std::vector<PhrasedCaption> captions;
  std::vector<std::string> texts;
  std::size_t most = 0;  // the greatest number of phrases in a caption
  for (std::size_t i = 0; i < samples.size(); ++i) {
    for (PhrasedCaption& caption : phrased_captions(samples[i].sample)) {
      most = std::max(most, caption.phrases.size());
      texts.push_back(caption.text);
      out.sample.push_back(i);
      captions.push_back(std::move(caption));
    }
  }
  const TowerFeatures features = features_of_tokens(embedder, texts, k_means);
  const std::int64_t count = std::ssize(captions), length = features.input.ids.size(1);
  std::vector<at::Tensor> clusters;
  out.mask = at::zeros({count, length}, at::kBool);
  out.segments = at::zeros({count, static_cast<std::int64_t>(most), length}, at::kBool);
  for (std::size_t i = 0; i < captions.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    const std::int64_t tokens =
        features.input.mask.defined() ? features.input.mask[row].sum().item<std::int64_t>() : length;
    out.tokens.push_back(embedder.token_texts(to_vector<std::int64_t>(features.input.ids[row].narrow(0, 0, tokens))));
    const auto spans = token_spans(captions[i].text, out.tokens.back(), /*cut=*/tokens == length);
    out.spelled.push_back(spans ? mark(*spans, captions[i].phrases, out.mask[row], out.segments[row]) : 0);
    if (k_means) clusters.push_back(clustered(features.tokens[row], out.mask[row], settings.clusters));
  }
  out.weights = k_means ? at::stack(clusters) : features.attention;
  return out;
}

at::Tensor equal_chunks(const GroupedCaptions& captions) {
  const at::Tensor place = captions.mask.to(at::kLong).cumsum(1) - 1;  // index of each token among those that cover text
  const std::int64_t groups = captions.weights.size(1);
  const at::Tensor count = at::tensor(captions.spelled, at::kLong).clamp_min(1).unsqueeze(1);
  const at::Tensor chunk = place.clamp_min(0).mul(groups).floor_divide(count).clamp_max(groups - 1);
  return at::zeros_like(captions.weights).scatter_(1, chunk.unsqueeze(1), 1);
}

}  // namespace tessera
