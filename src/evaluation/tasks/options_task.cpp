#include <map>

#include "src/data/sources/option_set.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/pairs.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/data_task.h"
#include "src/evaluation/tasks/retrieval_sheets.h"

namespace tessera {
namespace {

struct OptionTaskSettings : OptionSettings {
  std::string prompt_prefix;
  std::int64_t max_items = -1;
  SimilaritySettings compared;
};

template <class Visitor>
void fields(Visitor& v, OptionTaskSettings& s) {
  fields(v, static_cast<OptionSettings&>(s));
  v("prompt_prefix", s.prompt_prefix, "text put before every option's text, such as \"a photo of \" (MMVP)");
  v("max_items", s.max_items, "use only the first N items; -1: all", config::at_least(-1));
  similarity_field(v, s.compared);
}

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

std::vector<std::string> kinds_of(const Items& items) {
  std::vector<std::string> kinds;
  for (const OptionItem* item : items) kinds.push_back(item->kind);
  return kinds;
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
  add_share(measure, groups.to(at::kDouble).mean().item<double>(),
            {.part = groups, .sample = sample.index_select(0, at::tensor(first, at::kLong))}, result);
}

/// Reads items from a benchmark's own files. An item has right and wrong options for the same image or text.
class OptionsTask final : public TaskWithSettings<OptionTaskSettings> {
 public:
  std::string rule() const override {
    return "accuracy: the share of items whose right option is nearer than all others. For two images with one caption each, text_score is "
           "the share of items in which each image is nearer to its own caption, image_score the share in which each caption is nearer to "
           "its own image, and group_score the share with both. For two right captions and a wrong one, image_to_text_accuracy is the "
           "share in which the image is nearer to both right ones, and text_only_accuracy the share in which these are nearer to each "
           "other than to the wrong one. pair_accuracy, set_accuracy: the share of pairs and of sets of images (What's Up) in which all "
           "items are right." + similarity_sentence(settings_.compared);
  }

  void check(const EvaluationContext& context) const override {
    check_conditioned(context, "options.similarity", settings_.compared.similarity);
    read_options(settings_);
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    return measure_by_similarity("options", settings_.compared, embedder, context,
                                 [&](const Embedder& model) { return measure(model, context); });
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
    ItemKinds kinds(kinds_of(items));
    const bool has_unnamed = kinds.names.front().empty();  // the first name in alphabetical order
    if (has_unnamed) kinds.names.front() = "other";
    const std::vector<std::string> measures = measures_of(set.form);
    std::vector<at::Tensor> shares;  // of the kinds, for each measure
    for (std::size_t m = 0; m < measures.size(); ++m) {
      const at::Tensor own = right.select(1, static_cast<std::int64_t>(m));
      if (kinds.names.size() > 1)
        shares.push_back(add_by_kind(measures[m], own, sample, kinds, result));
      else
        add_share(measures[m], own.to(at::kDouble).mean().item<double>(), {.part = own, .sample = sample}, result);
    }
    add_groups("pair_accuracy", &OptionItem::pair, pairs, items, right.select(1, 0), sample, result);
    add_groups("set_accuracy", &OptionItem::set, sets, items, right.select(1, 0), sample, result);
    result.add_number("items", static_cast<double>(items.size()));
    if (context.images && !shares.empty()) {
      if (has_unnamed) shares[0][0] = -1;  // a bar needs a name of the benchmark
      add_bars(measures[0] + " by kind", kinds.names, shares[0], result);
    }
    return result;
  }

  EmbeddedImages embed_images(const OptionSet& set, const Embedder& embedder, const EvaluationContext& context, TaskResult& result) const {
    std::int64_t count = 0;  // number of distinct images; their indices follow the order in which items first use the images
    for (const OptionItem& item : set.items)
      count = std::max(count, 1 + *std::max_element(item.images.begin(), item.images.end()));
    EmbeddedImages out;
    out.row.assign(static_cast<std::size_t>(count), -1);
    std::int64_t rows = 0;
    Pass pass{.embedder = embedder, .context = context, .source = set.images, .max_samples = count, .reads_pixels = false};
    pass.order = SourceOrder{.key = "options", .choice = {}, .options = settings_};
    out.features = pass.run_and_keep(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures&) {
      for (const EvaluationSample& sample : samples) out.row[static_cast<std::size_t>(sample.index)] = rows++;
    });
    return out;
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
};

}  // namespace

void add_options(TaskRegistry& list) {
  add_task<OptionsTask>(list, "options", "right options against wrong ones, for the files of Winoground, SugarCrepe++, VALSE and others");
}

}  // namespace tessera
