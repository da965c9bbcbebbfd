#include <array>

#include <ATen/CPUGeneratorImpl.h>

#include "src/evaluation/metrics/localization.h"
#include "src/evaluation/metrics/point_sets.h"
#include "src/evaluation/metrics/segmentation.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/token_spans.h"

namespace tessera {
namespace {

struct TokenGroupSettings {
  TaskData data;
  std::string by = "groups";
  std::int64_t clusters = 4;
  std::int64_t samples = 8;
};

template <class Visitor>
void fields(Visitor& v, TokenGroupSettings& s) {
  data_fields(v, s.data);
  v("by", s.by,
    "what groups words; groups: the text tower's own groups; k_means: clusters of the tower's token features, for towers without "
    "groups (the paper's comparison)",
    config::one_of({"groups", "k_means"}));
  v("clusters", s.clusters, "with by: k_means, the number of clusters per caption", config::at_least(1));
  v("samples", s.samples, "number of captions to show, spread over the data", config::at_least(1));
}

/// A caption and the annotated phrases in it.
struct PhrasedCaption {
  std::string text;
  std::vector<std::array<std::int64_t, 2>> phrases;  // the bytes of each phrase, [begin, end)
};

/// Captions with annotated phrases, and a model's grouping of their tokens.
struct GroupedCaptions {
  std::vector<std::size_t> sample;               // the index of each caption's sample
  std::vector<std::vector<std::string>> tokens;  // tokens of each caption, without padding
  std::vector<std::int64_t> spelled;  // for each caption, how many of its tokens cover text; 0 if the tokens do not spell the caption
  at::Tensor weights;                 // [B, K, L], the weight of each token in each group
  at::Tensor mask;                    // bool [B, L], true for tokens that cover text
  at::Tensor segments;                // bool [B, S, L], true for the tokens of each phrase
};

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
      inside[static_cast<std::int64_t>(s)][token] = real[token] && spans[t][0] >= phrases[s][0] && spans[t][0] < phrases[s][1];
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

/// Returns the sample's captions that have annotated phrases, in the sample's order.
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

/// Returns all captions of these samples that have phrases, in the order of the samples. The groups are the text tower's own or, with
/// `clusters`, this number of clusters of the tokens that cover text, by k-means on their features. If a caption's tokens do not spell the
/// caption, none of them counts as covering text or belonging to a phrase. Throws UserError if the text tower has no groups or, for
/// k-means, no features of single tokens.
GroupedCaptions grouped_captions(const std::vector<EvaluationSample>& samples, const Embedder& embedder,
                                 std::optional<std::int64_t> clusters) {
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
  const TowerFeatures features = features_of_tokens(embedder, texts, clusters.has_value());
  const std::int64_t count = std::ssize(captions), length = features.input.ids.size(1);
  std::vector<at::Tensor> assigned;
  out.mask = at::zeros({count, length}, at::kBool);
  out.segments = at::zeros({count, static_cast<std::int64_t>(most), length}, at::kBool);
  for (std::size_t i = 0; i < captions.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    out.tokens.push_back(tokens_of(embedder, features.input, row));
    const auto spans = token_spans(captions[i].text, out.tokens.back(), /*cut=*/std::ssize(out.tokens.back()) == length);
    out.spelled.push_back(spans ? mark(*spans, captions[i].phrases, out.mask[row], out.segments[row]) : 0);
    if (clusters) assigned.push_back(clustered(features.tokens[row], out.mask[row], *clusters));
  }
  out.weights = clusters ? at::stack(assigned) : features.attention;
  return out;
}

/// Returns a baseline grouping, [B, K, L], which splits the tokens that cover text into K consecutive pieces of equal length.
at::Tensor equal_chunks(const GroupedCaptions& captions) {
  const at::Tensor place = captions.mask.to(at::kLong).cumsum(1) - 1;  // index of each token among those that cover text
  const std::int64_t groups = captions.weights.size(1);
  const at::Tensor count = at::tensor(captions.spelled, at::kLong).clamp_min(1).unsqueeze(1);
  const at::Tensor chunk = place.clamp_min(0).mul(groups).floor_divide(count).clamp_max(groups - 1);
  return at::zeros_like(captions.weights).scatter_(1, chunk.unsqueeze(1), 1);
}

constexpr std::uint64_t kSeed = 0;  // seed of the random groups

Required with_phrases() {
  return {[](const Sample& sample) { return !phrased_captions(sample).empty(); }, "no_phrases", "a caption with annotated phrases"};
}

/// Returns the indices of captions that have a score. per_caption: [B, 4].
at::Tensor with_score(const at::Tensor& per_caption) {
  return per_caption.select(1, 0).ge(0).nonzero().squeeze(1);
}

/// Accumulates the scores of one way to group tokens.
class ScoreMeter {
 public:
  /// Adds captions. `sample` holds the index of each caption's sample.
  metrics::TokenGroupScores add(const at::Tensor& weights, const GroupedCaptions& captions, const at::Tensor& sample) {
    auto scores = metrics::token_group_iou(weights, captions.mask, captions.segments);
    const at::Tensor scored = with_score(scores.per_caption);
    rows_.push_back(scores.per_caption.index_select(0, scored));
    samples_.push_back(sample.index_select(0, scored));
    return scores;
  }
  std::int64_t captions() const { return at::cat(rows_).size(0); }
  /// Adds the mean scores to the result. At least one caption must have been added. With `with_outcomes`, also adds the scores
  /// of each caption; this requires that no sample was skipped.
  void report(const std::string& prefix, bool with_outcomes, TaskResult& result) const {
    constexpr std::array<const char*, 4> kNames = {"iou", "precision", "recall", "f1"};
    const at::Tensor rows = at::cat(rows_), samples = at::cat(samples_), means = rows.mean(0);
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      const auto column = static_cast<std::int64_t>(i);
      result.add_share(prefix + kNames[i], means[column].item<double>(),
                       prefix.empty() ? MetricRule::Better::higher : MetricRule::Better::neither);
      if (with_outcomes)
        result.outcomes.push_back(make_outcomes(prefix + kNames[i], {.part = rows.select(1, column), .sample = samples}));
    }
  }

 private:
  std::vector<at::Tensor> rows_;     // scores of the captions, [n, 4] for each call of add()
  std::vector<at::Tensor> samples_;  // index of each caption's sample, [n] for each call of add()
};

/// For each sample, returns the row (in `captions`) of the sample's first caption whose `spelled` is above 0; -1 if there is no such
/// caption.
std::vector<std::int64_t> first_spelled(const GroupedCaptions& captions, std::size_t samples) {
  std::vector<std::int64_t> out(samples, -1);
  for (std::size_t row = captions.sample.size(); row-- > 0;)
    if (captions.spelled[row] > 0) out[captions.sample[row]] = static_cast<std::int64_t>(row);
  return out;
}

/// Measures how well a text tower's groups agree with the phrases of captions (tIoU of the text group transformer, section 4.4).
class TokenGroupTask final : public DataTask<TokenGroupSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    Pass pass = pass_over_data(embedder, context);
    pass.images = EvaluationImages::as_read;
    TaskResult result;
    ScoreMeter own, chunks, random;
    const auto clusters = settings_.by == "k_means" ? std::optional(settings_.clusters) : std::nullopt;
    double used = 0, phrases = 0;
    std::int64_t seen = 0, groups = 0, misspelled_samples = 0, misspelled_captions = 0;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
    auto json = nlohmann::json::array(), sheets = json;
    ExampleChooser examples(pass.total(), settings_.samples);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures&) {
      const GroupedCaptions captions = grouped_captions(samples, embedder, clusters);
      groups = captions.weights.size(1);
      const at::Tensor sample = at::tensor(std::vector<std::int64_t>(captions.sample.begin(), captions.sample.end()), at::kLong) + seen;
      seen += std::ssize(samples);
      const metrics::TokenGroupScores scores = own.add(captions.weights, captions, sample);
      chunks.add(equal_chunks(captions), captions, sample);
      random.add(at::rand(captions.weights.sizes(), generator, at::kFloat), captions, sample);
      used += groups_used(scores, groups);
      phrases += captions.segments.any(2).sum().item<double>();
      misspelled_captions += std::count(captions.spelled.begin(), captions.spelled.end(), 0);
      const std::vector<std::int64_t> rows = first_spelled(captions, samples.size());
      misspelled_samples += std::count(rows.begin(), rows.end(), -1);
      for (std::size_t i = 0; context.images && i < samples.size(); ++i) {
        if (rows[i] < 0 || !examples.choose(samples[i].index)) continue;
        const nlohmann::json tokens = grouped_tokens(rows[i], captions, scores.assignment);
        json.push_back({{"key", samples[i].sample.key}, {"tokens", tokens}});
        sheets.push_back({{"images", image_parts(samples[i], embedder)}, {"groups", nlohmann::json::array()}});
        for (const auto& token : tokens)
          sheets.back()["groups"].push_back(
              {{"text", token["token"]}, {"phrase", token["in_phrase"]}, {"group", token["group"]}, {"weights", token["weights"]}});
      }
    });
    if (misspelled_samples > 0) result.skipped["not_spelled"] = misspelled_samples;
    result.samples -= misspelled_samples;
    if (own.captions() == 0)
      user_error("token_group_iou: the tokens of no caption of ", pass.source->describe(),
                 " spell its text: is the vocabulary in its language?");
    const bool all = misspelled_samples == 0;
    own.report("", all, result);
    chunks.report("chunks_", all, result);
    random.report("random_", all, result);
    const auto count = static_cast<double>(own.captions());
    result.add_number("groups", static_cast<double>(groups));
    result.add_number("groups_per_caption", used / count);
    result.add_number("phrases_per_caption", phrases / count);
    result.add_number("captions", count);
    result.add_number("captions_not_spelled", static_cast<double>(misspelled_captions));
    add_items({{"type", "image"},
               {"title", "Groups"},
               {"note", "Captions with each word in the color of its group and annotated phrases underlined; below them the weight of "
                        "each word in each group (a middle dot is a token without text). If the image tower has groups, too, the image "
                        "is shown in their colors, which are unrelated to the caption's."}},
              sheets, result);
    if (!json.empty()) write_json(context.out, "token_groups.json", json);
    return result;
  }

 private:
  Required required() const override { return with_phrases(); }

  /// Returns the number of groups with at least one token, summed over the captions that have a score.
  static double groups_used(const metrics::TokenGroupScores& scores, std::int64_t groups) {
    const at::Tensor assignment =
        scores.assignment.index_select(0, with_score(scores.per_caption));  // [n, L]; -1 for no group
    return assignment.unsqueeze(2).eq(at::arange(groups, at::kLong)).any(1).sum().item<double>();
  }

  /// Returns the caption's tokens with their groups, for token_groups.json and the report.
  static nlohmann::json grouped_tokens(std::int64_t row, const GroupedCaptions& captions, const at::Tensor& assignment) {
    auto out = nlohmann::json::array();
    const at::Tensor weights = captions.weights[row].t().to(at::kFloat).contiguous();  // [L, K]
    const at::Tensor in_phrase = captions.segments[row].any(0);
    const auto& texts = captions.tokens[static_cast<std::size_t>(row)];
    for (std::size_t t = 0; t < texts.size(); ++t) {
      const auto token = static_cast<std::int64_t>(t);
      out.push_back({{"token", texts[t]},
                     {"in_phrase", in_phrase[token].item<bool>()},
                     {"group", assignment[row][token].item<std::int64_t>()},
                     {"weights", to_vector<float>(weights[token])}});
    }
    return out;
  }

  /// Returns the sample's image and, if the image tower has groups, the image in their colors. Returns nothing if the image is missing or
  /// cannot be decoded.
  static nlohmann::json image_parts(EvaluationSample sample, const Embedder& embedder) {
    auto out = nlohmann::json::array();
    try {
      prepare_image(sample, embedder.preprocessing());
    } catch (const SampleError&) {
      return out;
    }
    const Image image = to_image(sample.pixels);
    out.push_back(report::image_part(image, sample.sample.key));
    const at::Tensor attention = embedder.encode_images(sample.pixels.unsqueeze(0), {.attention = true}).attention;
    const config::Size grid = embedder.grid();
    if (!attention.defined() || attention.size(2) != grid.height * grid.width) return out;
    metrics::SegmentationOptions options;
    options.grid = {grid.height, grid.width};
    const at::Tensor groups = metrics::group_masks(attention, sample.pixels.size(1), sample.pixels.size(2), options);
    out.push_back(report::mask_part(image, to_vector<std::uint8_t>(groups.to(at::kByte)), "groups"));
    return out;
  }
};

}  // namespace

void add_token_group_iou(TaskRegistry& list) {
  add_task<TokenGroupTask>(
      list, "token_group_iou", "agreement of a text tower's groups with phrases (text group transformer)",
      "Groups of words are matched with annotated phrases so that the sum of their IoU (common words divided by all words of both) is "
      "greatest. iou, precision, recall and f1 are means over the pairs of a caption, then over captions. chunks and random: the same "
      "for equal chunks and for random groups.");
}

}  // namespace tessera
