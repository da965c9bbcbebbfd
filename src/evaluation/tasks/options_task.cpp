#include <algorithm>
#include <map>
#include <set>

#include <ATen/ATen.h>

#include "src/data/loading/evaluation_reader.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/pairs.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/outcomes.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/retrieval_sheets.h"
#include "src/evaluation/tasks/tasks.h"
#include "src/report/cards.h"

namespace tessera {
namespace {

constexpr std::size_t kItemsAtATime = 64;

/// Returns the names of the measures for this form of items, in the order in which judge() returns them.
std::vector<std::string> measures_of(OptionForm form) {
  if (form == OptionForm::pairs) return {"text_score", "image_score", "group_score"};
  if (form == OptionForm::paraphrase) return {"image_to_text_accuracy", "text_only_accuracy"};
  return {"accuracy"};
}

/// For each measure, returns whether the model answers the item correctly, bool [measures]. `scores` [images, texts] are the similarities
/// of the item's images and texts. `texts` [texts, D] are the embeddings of the item's texts.
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

using Items = std::vector<const OptionItem*>;

/// The embedded images of a benchmark. Images are identified by their number.
struct EmbeddedImages {
  TowerFeatures features;
  std::vector<std::int64_t> row;  // row of each image in `features`; -1 if the image could not be read

  bool all_there(const OptionItem& item) const {
    return std::all_of(item.images.begin(), item.images.end(),
                       [&](std::int64_t image) { return row[static_cast<std::size_t>(image)] >= 0; });
  }
  /// Returns the row of each item's first image, int64 [items].
  at::Tensor first_rows(const Items& items) const {
    std::vector<std::int64_t> rows;
    for (const OptionItem* item : items) rows.push_back(row[static_cast<std::size_t>(item->images.front())]);
    return at::tensor(rows, at::kLong);
  }
};

/// The kinds of items: their names, and the kind of each item as an index.
struct ItemKinds {
  std::vector<std::string> names;
  at::Tensor of;  // [items] int64

  explicit ItemKinds(const Items& items) {
    std::set<std::string> sorted;
    for (const OptionItem* item : items) sorted.insert(item->kind);
    names.assign(sorted.begin(), sorted.end());
    std::vector<std::int64_t> numbers;
    for (const OptionItem* item : items)
      numbers.push_back(std::lower_bound(names.begin(), names.end(), item->kind) - names.begin());
    of = at::tensor(numbers, at::kLong);
  }
};

/// Adds a measure's result for all items together, and its result for each kind of item. `right` is bool [items]. `sample` is
/// int64 [items], the image that each item belongs to. `sample` is needed because items of the same image are not independent.
void add_measure(const std::string& measure, const at::Tensor& right, const at::Tensor& sample, const ItemKinds& kinds,
                 TaskResult& result) {
  const auto scores = metrics::category_accuracy(right, kinds.of, std::ssize(kinds.names));
  const auto add = [&](const std::string& name, double value, const OutcomeRows& rows) {
    result.add_share(name, value);
    result.outcomes.push_back(make_outcomes(name, rows));
  };
  add(measure, scores.accuracy, {.part = right, .sample = sample});
  if (kinds.names.size() < 2) return;
  add("mean_category_" + measure, scores.mean_category_accuracy, {.part = right, .sample = sample, .group = kinds.of});
  for (std::size_t k = 0; k < kinds.names.size(); ++k) {
    const auto kind = static_cast<std::int64_t>(k);
    const at::Tensor own = kinds.of.eq(kind);
    add((kinds.names[k].empty() ? "other" : kinds.names[k]) + "_" + measure,
        scores.category_accuracy[kind].item<double>(),
        {.part = right.masked_select(own), .sample = sample.masked_select(own)});
  }
}

using Group = std::string OptionItem::*;  // a pointer to the member OptionItem::pair or OptionItem::set
using GroupSizes = std::map<std::string, std::int64_t>;

GroupSizes sizes_of(const std::vector<OptionItem>& items, Group group) {
  GroupSizes out;
  for (const OptionItem& item : items)
    if (!(item.*group).empty()) ++out[item.*group];
  return out;
}

/// If there are groups, adds the share of groups in which the model got every item right. Groups with unmeasured items do not count.
void add_groups(const std::string& measure, Group group, const GroupSizes& sizes, const Items& items,
                const at::Tensor& right, const at::Tensor& sample, TaskResult& result) {
  GroupSizes missing = sizes;
  for (const OptionItem* item : items)
    if (!(item->*group).empty()) --missing[item->*group];
  std::map<std::string, std::int64_t> numbers;
  std::vector<std::int64_t> number_of, first;  // each item's group (-1: none); each group's first item
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string& name = items[i]->*group;
    const bool counts = !name.empty() && missing.at(name) == 0;
    if (counts && numbers.emplace(name, std::ssize(numbers)).second) first.push_back(static_cast<std::int64_t>(i));
    number_of.push_back(counts ? numbers.at(name) : -1);
  }
  if (first.empty()) return;
  const at::Tensor groups = metrics::all_right(right, at::tensor(number_of, at::kLong), std::ssize(first));
  result.add_share(measure, groups.to(at::kDouble).mean().item<double>());
  result.outcomes.push_back(
      make_outcomes(measure, {.part = groups, .sample = sample.index_select(0, at::tensor(first, at::kLong))}));
}

class OptionsTask final : public EvaluationTask {
 public:
  explicit OptionsTask(OptionTaskSettings settings) : settings_(std::move(settings)) {}

  std::string rule() const override {
    return std::string("accuracy: the share of items whose right option is nearer than all others. For two images with one caption each, text_score is "
           "the share of items in which each image is nearer to its own caption, image_score the share in which each caption is nearer to "
           "its own image, and group_score the share with both. For two right captions and a wrong one, image_to_text_accuracy is the "
           "share in which the image is nearer to both right ones, and text_only_accuracy the share in which these are nearer to each "
           "other than to the wrong one. pair_accuracy, set_accuracy: the share of pairs and of sets of images (What's Up) in which all "
           "items are right.") +
           similarity_sentence({.similarity = settings_.similarity});
  }

  void check(const EvaluationContext& context) const override {
    check_conditioned(context, "options.similarity", settings_.similarity, "global");
    read_options(settings_);
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    if (settings_.similarity == "global") return measure(embedder, context);
    TaskResult result =
        measure(conditioned(embedder, context, "options.similarity", settings_.similarity, "global"), context);
    result.data += " (conditioned)";
    return result;
  }

 private:
  TaskResult measure(const Embedder& embedder, const EvaluationContext& context) const {
    OptionSet set = read_options(settings_);
    const GroupSizes pairs = sizes_of(set.items, &OptionItem::pair), sets = sizes_of(set.items, &OptionItem::set);
    const auto wanted = static_cast<std::size_t>(settings_.max_items);
    if (settings_.max_items >= 0 && set.items.size() > wanted) set.items.resize(wanted);
    TaskResult result;
    const EmbeddedImages images = embed_images(set, embedder, context, result);
    for (const auto& [reason, count] : set.skipped) result.skipped[reason] += count;
    Items items;
    for (const OptionItem& item : set.items)
      if (images.all_there(item)) items.push_back(&item);
    if (items.size() < set.items.size())
      result.skipped["item_without_picture"] += std::ssize(set.items) - std::ssize(items);
    if (items.empty()) user_error(set.described, ": no item has all its images");

    std::vector<at::Tensor> judged;
    for (std::size_t i = 0; i < items.size(); i += kItemsAtATime)
      judge_some({items.begin() + static_cast<std::ptrdiff_t>(i),
                  items.begin() + static_cast<std::ptrdiff_t>(std::min(i + kItemsAtATime, items.size()))},
                 set.form, images, embedder, judged);
    result.data = set.described;
    for (const OptionItem* item : items) result.texts += std::ssize(item->texts);
    const at::Tensor right = at::stack(judged);  // bool [items, measures]
    const at::Tensor sample = images.first_rows(items);
    const ItemKinds kinds(items);
    const std::vector<std::string> measures = measures_of(set.form);
    for (std::size_t m = 0; m < measures.size(); ++m)
      add_measure(measures[m], right.select(1, static_cast<std::int64_t>(m)), sample, kinds, result);
    add_groups("pair_accuracy", &OptionItem::pair, pairs, items, right.select(1, 0), sample, result);
    add_groups("set_accuracy", &OptionItem::set, sets, items, right.select(1, 0), sample, result);
    result.add_number("items", static_cast<double>(items.size()));
    if (context.images) show_kinds(kinds, measures[0], result);
    return result;
  }

  static EmbeddedImages embed_images(const OptionSet& set, const Embedder& embedder,
                                         const EvaluationContext& context, TaskResult& result) {
    std::int64_t count = 0;  // number of distinct images; their indices follow the order in which items first use the images
    for (const OptionItem& item : set.items)
      count = std::max(count, 1 + *std::max_element(item.images.begin(), item.images.end()));
    EmbeddedImages out;
    out.row.assign(static_cast<std::size_t>(count), -1);
    std::int64_t rows = 0;
    std::vector<TowerFeatures> batches;
    const Pass pass{.embedder = embedder, .context = context, .source = set.images, .max_samples = count};
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (const EvaluationSample& sample : samples) out.row[static_cast<std::size_t>(sample.index)] = rows++;
      batches.push_back(embedder.compact(features));
    });
    out.features = joined(batches);
    return out;
  }

  static void show_kinds(const ItemKinds& kinds, const std::string& measure, TaskResult& result) {
    std::vector<std::pair<std::string, double>> shown;
    const std::map<std::string, double> values(result.metrics.begin(), result.metrics.end());
    for (const std::string& name : kinds.names)
      if (const auto found = values.find(name + "_" + measure); found != values.end())
        shown.emplace_back(name, found->second);
    if (!shown.empty()) result.add_card(report::bars_card(measure + " by kind", shown));
  }

  void judge_some(const Items& items, OptionForm form, const EmbeddedImages& images, const Embedder& embedder,
                  std::vector<at::Tensor>& right) const {
    std::vector<std::string> texts;
    std::vector<std::int64_t> rows;  // for each item in order, the rows of its images in `images.features`
    for (const OptionItem* item : items) {
      texts.insert(texts.end(), item->texts.begin(), item->texts.end());
      for (const std::int64_t image : item->images) rows.push_back(images.row[static_cast<std::size_t>(image)]);
    }
    const TowerFeatures embedded = embed_texts(embedder, prefixed(texts, settings_.prompt_prefix));
    const at::Tensor scores = embedder.similarity(select_rows(images.features, rows), embedded);
    std::int64_t image = 0, text = 0;
    for (const OptionItem* item : items) {
      const std::int64_t own_images = std::ssize(item->images), own_texts = std::ssize(item->texts);
      right.push_back(judge(form, scores.narrow(0, image, own_images).narrow(1, text, own_texts),
                            embedded.global.narrow(0, text, own_texts)));
      image += own_images;
      text += own_texts;
    }
  }

  OptionTaskSettings settings_;
};

}  // namespace

std::shared_ptr<EvaluationTask> make_options_task(const OptionTaskSettings& settings) {
  return std::make_shared<OptionsTask>(settings);
}

}  // namespace tessera
