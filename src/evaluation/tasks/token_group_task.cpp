#include <array>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <nlohmann/json.hpp>

#include "src/evaluation/tasks/examples.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/tasks.h"
#include "src/evaluation/token_spans.h"
#include <tessera/evaluation/metrics/segmentation.h>
#include <tessera/evaluation/metrics/token_group_iou.h>
#include <tessera/io/atomic_file.h>
#include <tessera/report/group_sheet.h>

namespace tessera {
namespace {

constexpr std::uint64_t kSeed = 0;  // of the random groups

bool is_phrase(const ObjectAnnotation& object) {
  return object.span[1] > object.span[0];
}

Required with_phrases() {
  return {[](const EvaluationSample& sample) {
            const auto& objects = sample.sample.objects;
            return !sample.sample.captions.empty() && std::any_of(objects.begin(), objects.end(), is_phrase);
          },
          "no_phrases", "a caption with annotated phrases"};
}

/// Captions with what the text tower makes of them.
struct Captions {
  std::vector<std::vector<std::string>> tokens;  // of each caption, padding left out
  std::vector<std::int64_t> spelled;             // how many tokens of each stand for text
  at::Tensor weights;                            // [B, K, L]
  at::Tensor mask;                               // bool [B, L], tokens that stand for text
  at::Tensor segments;                           // bool [B, S, L]
};

/// Adds up the scores of one way to group tokens.
class ScoreMeter {
 public:
  metrics::TokenGroupScores add(const at::Tensor& weights, const Captions& captions) {
    auto scores = metrics::token_group_iou(weights, captions.mask, captions.segments);
    const at::Tensor known = scores.per_caption.select(1, 0).ge(0).nonzero().squeeze(1);
    rows_.push_back(scores.per_caption.index_select(0, known));
    return scores;
  }
  std::int64_t captions() const { return at::cat(rows_).size(0); }
  void report(const std::string& prefix, TaskResult& result) const {
    constexpr std::array<const char*, 4> kNames = {"iou", "precision", "recall", "f1"};
    const at::Tensor all = at::cat(rows_);
    for (std::size_t i = 0; i < kNames.size(); ++i)
      result.metrics.emplace_back(
          prefix + kNames[i], all.size(0) > 0 ? all.select(1, static_cast<std::int64_t>(i)).mean().item<double>() : 0);
  }

 private:
  std::vector<at::Tensor> rows_;  // [n, 4]
};

/// Each caption's tokens in equal pieces that follow each other, [B, K, L].
at::Tensor equal_chunks(const Captions& captions) {
  const at::Tensor place = captions.mask.to(at::kLong).cumsum(1) - 1;  // among the tokens that stand for text
  const std::int64_t groups = captions.weights.size(1);
  const at::Tensor count = at::tensor(captions.spelled, at::kLong).clamp_min(1).unsqueeze(1);
  const at::Tensor chunk = place.clamp_min(0).mul(groups).floor_divide(count).clamp_max(groups - 1);
  return at::zeros_like(captions.weights).scatter_(1, chunk.unsqueeze(1), 1);
}

nlohmann::json json_of(const std::string& key, const GroupExample& example) {
  auto tokens = nlohmann::json::array();
  for (const GroupExample::Token& token : example.tokens)
    tokens.push_back(
        {{"token", token.text}, {"in_phrase", token.in_phrase}, {"group", token.group}, {"weights", token.weights}});
  return {{"key", key}, {"tokens", tokens}};
}

class TokenGroupTask final : public EvaluationTask {
 public:
  explicit TokenGroupTask(TokenGroupSettings settings) : settings_(std::move(settings)) {}

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const auto source = open_source(settings_.data.source, context.source, "token_group_iou.source");
    TaskResult result;
    ScoreMeter own, chunks, random;
    double used = 0, phrases = 0;
    std::int64_t groups = 0, misspelled = 0;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
    auto json = nlohmann::json::array();
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = settings_.data.max_samples,
                    .required = with_phrases(),
                    .needs = {.attention = context.pictures}};
    ExampleChooser examples(pass.total(), settings_.samples);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& images) {
      const Captions captions = grouped(samples, embedder, misspelled);
      groups = captions.weights.size(1);
      const metrics::TokenGroupScores scores = own.add(captions.weights, captions);
      chunks.add(equal_chunks(captions), captions);
      random.add(at::rand(captions.weights.sizes(), generator, at::kFloat), captions);
      used += groups_used(scores.assignment, groups);
      phrases += captions.segments.any(2).sum().item<double>();
      for (std::size_t i = 0; context.pictures && i < samples.size(); ++i) {
        if (captions.spelled[i] == 0 || !examples.choose(samples[i].index)) continue;
        result.pictures.groups.push_back(
            example(samples[i], static_cast<std::int64_t>(i), captions, scores.assignment, images, embedder));
        json.push_back(json_of(samples[i].sample.key, result.pictures.groups.back()));
      }
    });
    if (misspelled > 0) result.skipped["not_spelled"] = misspelled;
    result.samples -= misspelled;
    if (own.captions() == 0)
      user_error("token_group_iou: the tokens of no caption of ", source->describe(),
                 " spell its text: is the vocabulary in its language?");
    own.report("", result);
    chunks.report("chunks_", result);
    random.report("random_", result);
    const auto count = static_cast<double>(result.samples);
    result.metrics.emplace_back("groups", static_cast<double>(groups));
    result.metrics.emplace_back("groups_per_caption", used / count);
    result.metrics.emplace_back("phrases_per_caption", phrases / count);
    if (!json.empty() && !context.out.empty()) {
      io::write_file(context.out + "/token_groups.json",
                     json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
      io::write_file(context.out + "/token_groups.svg", report::group_sheet(result.pictures.groups));
    }
    return result;
  }

 private:
  /// Adds the captions whose tokens do not spell them to `misspelled`; none of their tokens is in a phrase.
  static Captions grouped(const std::vector<EvaluationSample>& samples, const Embedder& embedder,
                          std::int64_t& misspelled) {
    std::vector<std::string> texts;
    std::size_t most = 0;
    for (const EvaluationSample& sample : samples) {
      texts.push_back(sample.sample.captions.front());
      most = std::max(most, sample.sample.objects.size());
    }
    const TowerFeatures features = embed_texts(embedder, texts, {.attention = true, .input_ids = true});
    if (!features.attention.defined() || features.attention.size(2) != features.input.ids.size(1))
      user_error("token_group_iou: this model's text tower has no groups of tokens: take one whose read-out gives ",
                 "attention, as groups behind text_group_encoder does");
    Captions out;
    out.weights = features.attention;
    const std::int64_t count = std::ssize(samples), length = features.input.ids.size(1);
    out.mask = at::zeros({count, length}, at::kBool);
    out.segments = at::zeros({count, static_cast<std::int64_t>(most), length}, at::kBool);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const std::int64_t tokens =
          features.input.mask.defined() ? features.input.mask[row].sum().item<std::int64_t>() : length;
      out.tokens.push_back(embedder.token_texts(to_vector<std::int64_t>(features.input.ids[row].narrow(0, 0, tokens))));
      const auto spans = token_spans(texts[i], out.tokens.back(), /*cut=*/tokens == length);
      out.spelled.push_back(spans ? mark(*spans, samples[i].sample.objects, out.mask[row], out.segments[row]) : 0);
      if (!spans) ++misspelled;
    }
    return out;
  }

  /// Fills in one caption's mask [L] and segments [S, L]: a token belongs to the phrase that holds its first byte.
  /// Returns how many tokens stand for text.
  static std::int64_t mark(const std::vector<std::array<std::int64_t, 2>>& spans,
                           const std::vector<ObjectAnnotation>& objects, const at::Tensor& mask,
                           const at::Tensor& segments) {
    auto real = mask.accessor<bool, 1>();
    auto inside = segments.accessor<bool, 2>();
    std::int64_t count = 0;
    for (std::size_t t = 0; t < spans.size(); ++t) {
      const auto token = static_cast<std::int64_t>(t);
      real[token] = spans[t][1] > spans[t][0];
      count += real[token] ? 1 : 0;
      for (std::size_t s = 0; s < objects.size(); ++s)
        inside[static_cast<std::int64_t>(s)][token] =
            real[token] && spans[t][0] >= objects[s].span[0] && spans[t][0] < objects[s].span[1];
    }
    return count;
  }

  /// Groups that have a token, summed over captions; assignment [B, L], -1: none.
  static double groups_used(const at::Tensor& assignment, std::int64_t groups) {
    return assignment.unsqueeze(2).eq(at::arange(groups, at::kLong)).any(1).sum().item<double>();
  }

  static GroupExample example(const EvaluationSample& sample, std::int64_t row, const Captions& captions,
                              const at::Tensor& assignment, const TowerFeatures& images, const Embedder& embedder) {
    GroupExample out{.image = to_image(sample.pixels), .picture_groups = {}, .tokens = {}};
    const at::Tensor weights = captions.weights[row].t().to(at::kFloat).contiguous();  // [L, K]
    const at::Tensor in_phrase = captions.segments[row].any(0);
    const auto& texts = captions.tokens[static_cast<std::size_t>(row)];
    for (std::size_t t = 0; t < texts.size(); ++t) {
      const auto token = static_cast<std::int64_t>(t);
      out.tokens.push_back({.text = texts[t],
                            .in_phrase = in_phrase[token].item<bool>(),
                            .group = assignment[row][token].item<std::int64_t>(),
                            .weights = to_vector<float>(weights[token])});
    }
    const config::Size grid = embedder.grid();
    if (images.attention.defined() && images.attention.size(2) == grid.height * grid.width) {
      metrics::SegmentationOptions options;
      options.grid = {grid.height, grid.width};
      const at::Tensor groups = metrics::group_masks(images.attention.narrow(0, row, 1), sample.pixels.size(1),
                                                     sample.pixels.size(2), options);
      out.picture_groups = to_vector<std::uint8_t>(groups.to(at::kByte));
    }
    return out;
  }

  TokenGroupSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_token_group_task(const TokenGroupSettings& settings) {
  return std::make_shared<TokenGroupTask>(settings);
}

}  // namespace tessera
