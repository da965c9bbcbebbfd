#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/retrieval_sheets.h"
#include "src/evaluation/tasks/tasks.h"
#include <tessera/evaluation/metrics/pairs.h>

namespace tessera {
namespace {

constexpr std::size_t kItemsAtATime = 64;

/// What an item is judged by, in the order of judge().
std::vector<std::string> measures_of(OptionForm form) {
  if (form == OptionForm::pairs) return {"text_score", "image_score", "group_score"};
  if (form == OptionForm::paraphrase) return {"image_to_text_accuracy", "text_only_accuracy"};
  return {"accuracy"};
}

/// `scores` [pictures, texts] of one item, `texts` [texts, D] their embeddings; returns whether it is right by each
/// measure, bool [measures].
at::Tensor judge(OptionForm form, const at::Tensor& scores, const at::Tensor& texts) {
  if (form == OptionForm::pairs) {
    const auto out = metrics::winoground(scores.t().unsqueeze(0));
    return at::cat({out.text_correct, out.image_correct, at::logical_and(out.text_correct, out.image_correct)});
  }
  if (form == OptionForm::paraphrase) {
    const at::Tensor unit = metrics::unit_rows(texts);
    const auto out = metrics::paraphrase(scores, unit.matmul(unit.t()).unsqueeze(0));
    return at::cat({out.image_to_text, out.text_only});
  }
  return metrics::first_is_best(scores.reshape({1, -1}));
}

/// Pictures of a benchmark, embedded, by their number.
struct EmbeddedPictures {
  TowerFeatures features;
  std::vector<std::int64_t> row;  // -1: it could not be read

  bool all_there(const OptionItem& item) const {
    return std::all_of(item.pictures.begin(), item.pictures.end(),
                       [&](std::int64_t picture) { return row[static_cast<std::size_t>(picture)] >= 0; });
  }
};

using Items = std::vector<const OptionItem*>;

class OptionsTask final : public EvaluationTask {
 public:
  explicit OptionsTask(OptionTaskSettings settings) : settings_(std::move(settings)) {}

  void check(const EvaluationContext& /*context*/) const override { read_options(settings_); }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    OptionSet set = read_options(settings_);
    const auto wanted = static_cast<std::size_t>(settings_.max_items);
    if (settings_.max_items >= 0 && set.items.size() > wanted) set.items.resize(wanted);
    TaskResult result;
    const EmbeddedPictures pictures = embed_pictures(set, embedder, context, result);
    for (const auto& [reason, count] : set.skipped) result.skipped[reason] += count;
    Items items;
    for (const OptionItem& item : set.items)
      if (pictures.all_there(item)) items.push_back(&item);
    if (items.size() < set.items.size())
      result.skipped["item_without_picture"] += std::ssize(set.items) - std::ssize(items);
    if (items.empty()) user_error(set.described, ": no item has all its pictures");

    std::vector<at::Tensor> right;
    for (std::size_t i = 0; i < items.size(); i += kItemsAtATime)
      judge_some({items.begin() + static_cast<std::ptrdiff_t>(i),
                  items.begin() + static_cast<std::ptrdiff_t>(std::min(i + kItemsAtATime, items.size()))},
                 set.form, pictures, embedder, right);
    result.data = set.described;
    summarize(items, set.form, at::stack(right), result, context.pictures);
    return result;
  }

 private:
  static EmbeddedPictures embed_pictures(const OptionSet& set, const Embedder& embedder,
                                         const EvaluationContext& context, TaskResult& result) {
    std::int64_t count = 0;  // items name new pictures in order
    for (const OptionItem& item : set.items)
      count = std::max(count, 1 + *std::max_element(item.pictures.begin(), item.pictures.end()));
    EmbeddedPictures out;
    out.row.assign(static_cast<std::size_t>(count), -1);
    std::int64_t rows = 0;
    std::vector<TowerFeatures> batches;
    const Pass pass{.embedder = embedder, .context = context, .source = set.pictures, .max_samples = count};
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (const EvaluationSample& sample : samples) out.row[static_cast<std::size_t>(sample.index)] = rows++;
      batches.push_back(embedder.compact(features));
    });
    out.features = joined(batches);
    return out;
  }

  void judge_some(const Items& items, OptionForm form, const EmbeddedPictures& pictures, const Embedder& embedder,
                  std::vector<at::Tensor>& right) const {
    std::vector<std::string> texts;
    std::vector<std::int64_t> rows;  // of the items' pictures, one item's after the other's
    for (const OptionItem* item : items) {
      texts.insert(texts.end(), item->texts.begin(), item->texts.end());
      for (const std::int64_t picture : item->pictures) rows.push_back(pictures.row[static_cast<std::size_t>(picture)]);
    }
    const TowerFeatures embedded = embed_texts(embedder, prefixed(texts, settings_.prompt_prefix));
    const at::Tensor scores = embedder.similarity(rows_of(pictures.features, rows), embedded);
    std::int64_t picture = 0, text = 0;
    for (const OptionItem* item : items) {
      const std::int64_t own_pictures = std::ssize(item->pictures), own_texts = std::ssize(item->texts);
      right.push_back(judge(form, scores.narrow(0, picture, own_pictures).narrow(1, text, own_texts),
                            embedded.global.narrow(0, text, own_texts)));
      picture += own_pictures;
      text += own_texts;
    }
  }

  /// `right` bool [items, measures].
  static void summarize(const Items& items, OptionForm form, const at::Tensor& right, TaskResult& result,
                        bool with_pictures) {
    std::set<std::string> sorted;
    for (const OptionItem* item : items) sorted.insert(item->kind);
    const std::vector<std::string> kinds(sorted.begin(), sorted.end());
    std::vector<std::int64_t> category;
    for (const OptionItem* item : items)
      category.push_back(std::lower_bound(kinds.begin(), kinds.end(), item->kind) - kinds.begin());
    const std::vector<std::string> measures = measures_of(form);
    std::vector<std::pair<std::string, double>> by_kind;
    for (std::size_t m = 0; m < measures.size(); ++m) {
      const auto scores = metrics::category_accuracy(right.select(1, static_cast<std::int64_t>(m)),
                                                     at::tensor(category, at::kLong), std::ssize(kinds));
      result.metrics.emplace_back(measures[m], scores.accuracy);
      if (kinds.size() < 2) continue;
      result.metrics.emplace_back("mean_category_" + measures[m], scores.mean_category_accuracy);
      const auto shares = to_vector<double>(scores.category_accuracy);
      for (std::size_t k = 0; k < kinds.size(); ++k) {
        by_kind.emplace_back((kinds[k].empty() ? "other" : kinds[k]) + "_" + measures[m], shares[k]);
        if (with_pictures && m == 0) result.pictures.class_values.emplace_back(kinds[k], shares[k]);
      }
    }
    result.pictures.class_measure = measures[0];
    result.metrics.insert(result.metrics.end(), by_kind.begin(), by_kind.end());
    result.metrics.emplace_back("items", static_cast<double>(items.size()));
  }

  OptionTaskSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_options_task(const OptionTaskSettings& settings) {
  return std::make_shared<OptionsTask>(settings);
}

}  // namespace tessera
