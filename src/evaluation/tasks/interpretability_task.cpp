#include <algorithm>

#include <ATen/ATen.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/sparse.h"
#include "src/evaluation/tasks/candidates.h"
#include "src/evaluation/tasks/check_samples.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/tasks.h"
#include "src/evaluation/token_space.h"
#include "src/report/cards.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

class InterpretabilityTask final : public EvaluationTask {
 public:
  explicit InterpretabilityTask(InterpretabilitySettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return "top k: the share of images whose class name is among the k most active of all tokens. median_rank: the median of its rank "
           "among them, from 1.";
  }

  void check(const EvaluationContext& context) const override {
    const auto source = open_samples(settings_.data.source, context.source, "interpretability.source");
    const Candidates candidates = candidates_for(settings_.classes, *source, "interpretability");
    check_samples(*source, "source", settings_.data.max_samples, labeled_or_named(),
                  [&](const Sample& sample) { candidates.label_of(sample, *source); });
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const auto source = open_samples(settings_.data.source, context.source, "interpretability.source");
    const Candidates candidates = candidates_for(settings_.classes, *source, "interpretability");
    const TokenSpace space(embedder, context, settings_.space, "interpretability");
    const at::Tensor class_entries = entries_of(candidates.names, space);
    TaskResult result;
    result.classes = candidates.names;
    add_note(candidates.matched, result);
    std::vector<at::Tensor> ranks;
    std::vector<std::int64_t> labels;
    const Pass pass{.embedder = embedder,
                    .context = context,
                    .source = source,
                    .max_samples = settings_.data.max_samples,
                    .required = candidates.asked(*source)};
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      std::vector<std::int64_t> own;
      for (const EvaluationSample& sample : samples) own.push_back(candidates.label_of(sample.sample, *source));
      ranks.push_back(metrics::interpretability_ranking(space.activations(features), at::tensor(own, at::kLong),
                                                        class_entries, settings_.topk)
                          .rank);
      labels.insert(labels.end(), own.begin(), own.end());
    });
    const at::Tensor rank = at::cat(ranks);  // [N], counted from 1
    const std::vector<double> shares = metrics::recall_at(rank - 1, settings_.topk);
    for (std::size_t i = 0; i < settings_.topk.size(); ++i) {
      const std::string name = concat("top", settings_.topk[i]);
      result.add_share(name, shares[i]);
      result.outcomes.push_back(hits_within(name, rank - 1, settings_.topk[i]));
    }
    result.add_number("median_rank", rank.median().item<double>(), MetricRule::Better::lower);
    result.add_number("tokens", static_cast<double>(space.size()));
    if (context.images) add_classes(candidates.names, rank, at::tensor(labels, at::kLong), result);
    return result;
  }

 private:
  /// Returns the vocabulary entries of each class name, int64 [C, S], padded with -1. Throws UserError if none of the class
  /// names has an entry.
  static at::Tensor entries_of(const std::vector<std::string>& names, const TokenSpace& space) {
    std::vector<std::vector<std::int64_t>> entries;
    std::size_t most = 0;
    for (const std::string& name : names) {
      entries.push_back(space.entries_of(name));
      most = std::max(most, entries.back().size());
    }
    if (most == 0)
      user_error("interpretability: the vocabulary has no token of any class name, the first being \"", names.front(),
                 "\": are they in its language?");
    const at::Tensor out = at::full({std::ssize(names), static_cast<std::int64_t>(most)}, -1, at::kLong);
    for (std::size_t c = 0; c < names.size(); ++c)
      for (std::size_t s = 0; s < entries[c].size(); ++s)
        out[static_cast<std::int64_t>(c)][static_cast<std::int64_t>(s)] = entries[c][s];
    return out;
  }

  void add_classes(const std::vector<std::string>& names, const at::Tensor& rank, const at::Tensor& labels,
                   TaskResult& result) const {
    const std::int64_t k = settings_.topk.front();
    std::vector<std::pair<std::string, double>> values;
    for (std::size_t c = 0; c < names.size(); ++c) {
      const at::Tensor own = labels.eq(static_cast<std::int64_t>(c));
      if (own.any().item<bool>())
        values.emplace_back(names[c], metrics::recall_at(rank.masked_select(own) - 1, {k}).front());
    }
    if (!values.empty()) result.add_card(report::bars_card(concat("Class name among the first ", k, k == 1 ? " token" : " tokens", " by class"), values));
  }

  InterpretabilitySettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_interpretability_task(const InterpretabilitySettings& settings) {
  return std::make_shared<InterpretabilityTask>(settings);
}

}  // namespace tessera
