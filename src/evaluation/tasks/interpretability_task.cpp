#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/sparse.h"
#include "src/evaluation/tasks/candidates.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/token_space.h"

namespace tessera {
namespace {

struct InterpretabilitySettings {
  TaskData data;
  TextList classes;
  std::vector<std::int64_t> topk = {1, 10, 50, 100};
  VocabularySettings space;
};

template <class Visitor>
void fields(Visitor& v, InterpretabilitySettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "class names, one per label; empty: those of the source");
  v("topk", s.topk, "the values k for which to report the accuracy: the class name is among the k most active tokens",
    config::at_least(1));
  fields(v, s.space);
}

std::optional<config::Problem> validate(const InterpretabilitySettings& settings) {
  if (auto problem = check_topk(settings.topk)) return problem;
  return check_templates(settings.space.templates);
}

/// Measures the rank of the class name among all tokens of a vocabulary (Chen et al. 2023, section 5).
class InterpretabilityTask final : public DataTask<InterpretabilitySettings> {
 public:
  void check(const EvaluationContext& context) const override {
    candidates_for(settings_.classes, source_in(context), "interpretability").check(settings_.data.max_samples);
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    Pass pass = pass_over_data(embedder, context);
    const Candidates candidates = candidates_for(settings_.classes, pass.source, "interpretability");
    pass.required = candidates.asked();
    pass.reads_pixels = false;
    const TokenSpace space(embedder, context, settings_.space, "interpretability");
    const at::Tensor class_entries = entries_of(candidates.names, space);
    TaskResult result;
    result.classes = candidates.names;
    add_note(candidates.matched, result);
    std::vector<at::Tensor> ranks;
    std::vector<std::int64_t> labels;
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const std::vector<std::int64_t> own = candidates.labels_of(samples);
      ranks.push_back(metrics::interpretability_ranking(space.activations(features), at::tensor(own, at::kLong), class_entries));
      labels.insert(labels.end(), own.begin(), own.end());
    });
    const at::Tensor rank = at::cat(ranks);  // [N], counted from 1
    add_hits("top", settings_.topk, rank - 1, result);
    result.add_number("median_rank", rank.median().item<double>(), MetricRule::Better::lower);
    result.add_number("tokens", static_cast<double>(space.size()));
    if (context.images) add_classes(candidates.names, rank, at::tensor(labels, at::kLong), result);
    return result;
  }

 private:
  Joined joined() const override { return Joined::none; }

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

  void add_classes(const std::vector<std::string>& names, const at::Tensor& rank, const at::Tensor& labels, TaskResult& result) const {
    const std::int64_t k = settings_.topk.front();
    const at::Tensor shares = at::full({std::ssize(names)}, -1, at::kDouble);
    for (std::int64_t c = 0; c < shares.size(0); ++c)
      if (const at::Tensor own = rank.masked_select(labels.eq(c)); own.numel() > 0) shares[c] = metrics::recall_at(own - 1, {k}).front();
    add_bars(concat("Class name among the first ", k, k == 1 ? " token" : " tokens", " by class"), names, shares, result);
  }
};

}  // namespace

void add_interpretability(TaskRegistry& list) {
  add_task<InterpretabilityTask>(
      list, "interpretability", "rank of the class name among all vocabulary tokens (STAIR)",
      "top k: the share of images whose class name is among the k most active of all tokens. median_rank: the median of its rank "
      "among them, from 1.");
}

}  // namespace tessera
