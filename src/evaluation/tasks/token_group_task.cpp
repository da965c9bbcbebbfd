#include <algorithm>
#include <array>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/segmentation.h"
#include "src/evaluation/metrics/localization.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/examples.h"
#include "src/evaluation/tasks/grouped_captions.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/tasks.h"
#include "src/report/cards.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

constexpr std::uint64_t kSeed = 0;  // seed of the random groups

Required with_phrases() {
  return {[](const Sample& sample) { return !phrased_captions(sample).empty(); }, "no_phrases",
          "a caption with annotated phrases"};
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

class TokenGroupTask final : public EvaluationTask {
 public:
  explicit TokenGroupTask(TokenGroupSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "Groups of words are matched with annotated phrases so that the sum of their IoU (common words divided by all words of both) is "
           "greatest. iou, precision, recall and f1 are means over the pairs of a caption, then over captions. chunks and random: the same "
           "for equal chunks and for random groups.";
  }

  void check(const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "token_group_iou.source");
    check_samples(*source, "source", settings_.data.max_samples, with_phrases());
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "token_group_iou.source");
    TaskResult result;
    ScoreMeter own, chunks, random;
    double used = 0, phrases = 0;
    std::int64_t seen = 0, groups = 0, misspelled_samples = 0, misspelled_captions = 0;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
    auto json = nlohmann::json::array(), sheets = json;
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = settings_.data.max_samples,
                    .required = with_phrases(),
                    .images = EvaluationImages::as_read};
    ExampleChooser examples(pass.total(), settings_.samples);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures&) {
      const GroupedCaptions captions = grouped_captions(samples, embedder, settings_);
      groups = captions.weights.size(1);
      const at::Tensor sample =
          at::tensor(std::vector<std::int64_t>(captions.sample.begin(), captions.sample.end()), at::kLong) + seen;
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
      user_error("token_group_iou: the tokens of no caption of ", source->describe(),
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
    if (!sheets.empty())
      result.add_card({{"type", "image"},
                       {"title", "Groups"},
                       {"note", "Captions with each word in the color of its group and annotated phrases underlined; below them the weight of "
                                "each word in each group (a middle dot is a token without text). If the image tower has groups, too, the image "
                                "is shown in their colors, which are unrelated to the caption's."},
                       {"items", sheets}});
    if (!json.empty() && !context.out.empty()) io::write_file(context.out + "/token_groups.json", dump_utf8(json, 1) + "\n");
    return result;
  }

 private:
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

  TokenGroupSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_token_group_task(const TokenGroupSettings& settings) {
  return std::make_shared<TokenGroupTask>(settings);
}

}  // namespace tessera
