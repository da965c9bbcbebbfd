#include <set>

#include "src/evaluation/embedder_views.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/zero_shot.h"
#include "src/evaluation/tasks/candidates.h"
#include "src/evaluation/tasks/conditioned.h"
#include "src/evaluation/tasks/data_task.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

struct ZeroShotSettings {
  TaskData data;
  TextList classes;
  std::vector<std::int64_t> labels;
  TextList templates = {kUsualPrompt};
  std::vector<std::int64_t> topk = {1, 5};
  std::vector<std::string> groups, other_groups;
  std::string label_field;
  bool macro_f1 = false;
  SimilaritySettings compared;
};

template <class Visitor>
void fields(Visitor& v, ZeroShotSettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "class names, one per label; empty: those of the source");
  v("labels", s.labels,
    "the label of each class in `classes`; images with other labels are left out (Babel-ImageNet); empty: 0, 1, 2, ...",
    config::at_least(0));
  v("templates", s.templates, "prompts with {} or {c} for the class name; the embeddings of several prompts are averaged (Radford et al. "
                              "2021, 3.1.4)");
  v("topk", s.topk, "the values k for which to report the accuracy: the right class is among the k best", config::at_least(1));
  v("groups", s.groups,
    "side fields, such as region, whose values divide the images into groups: whole numbers from 0. For each field and "
    "each k, the accuracy "
    "of each group is reported, and that of the worst group");
  v("other_groups", s.other_groups,
    "groups FIELD:N, such as region:5, without which the accuracy of the worst group of FIELD is reported, too, as "
    "topK_FIELD_worst_no_other (WILDS leaves out FMoW's region Other)");
  v("label_field", s.label_field,
    "side field that repeats the label, such as y in WILDS' metadata; an image with another number in it is an error; empty: none");
  v("macro_f1", s.macro_f1, "also report the mean over the classes in the data of each class's F1");
  fields(v, s.compared);
}

std::optional<config::Problem> validate(const ZeroShotSettings& settings) {
  if (auto problem = check_topk(settings.topk)) return problem;
  if (!settings.labels.empty() && settings.labels.size() != settings.classes.items.size())
    return config::Problem{"labels", concat("has ", settings.labels.size(), " numbers, but `classes` has ", settings.classes.items.size(),
                                            " names: give one for each")};
  for (const std::string& other : settings.other_groups)
    if (!contains(settings.groups, other.substr(0, other.rfind(':'))))
      return config::Problem{"other_groups", concat("has ", other, "; expected FIELD:N, where FIELD is one of `groups`")};
  if (auto problem = validate(settings.compared)) return problem;
  return check_templates(settings.templates);
}

constexpr std::int64_t kBars = 5;
constexpr std::int64_t kFailures = 12;
constexpr std::size_t kGreatestConfusion = 40;

/// Returns the numbers in the fields `names` of a sample. Throws TaskMisfit if one is missing or not a whole number from 0.
std::vector<std::int64_t> groups_of(const Sample& sample, const std::vector<std::string>& names) {
  const auto fields = nlohmann::json::parse(sample.fields, nullptr, false);
  std::vector<std::int64_t> out;
  for (const std::string& name : names) {
    const auto found = fields.is_object() ? fields.find(name) : fields.end();
    if (!fields.is_object() || found == fields.end() || !found->is_number_integer() || *found < 0)
      throw TaskMisfit(concat("sample ", sample.key, ": its field ", name, " (zero_shot.groups) is ",
                              !fields.is_object() || found == fields.end() ? "missing" : found->dump(),
                              "; expected a whole number from 0"));
    out.push_back(*found);
  }
  return out;
}

/// Throws TaskMisfit unless the field `name` of a sample repeats its label.
void check_label_field(const Sample& sample, const std::string& name) {
  const auto fields = nlohmann::json::parse(sample.fields, nullptr, false);
  const nlohmann::json found = fields.is_object() ? fields.value(name, nlohmann::json()) : nlohmann::json();
  if (found != sample.label)
    throw TaskMisfit(concat("sample ", sample.key, ": its field ", name, " (zero_shot.label_field) is ",
                            found.is_null() ? "missing" : found.dump(), ", but its label is ", sample.label,
                            ": its members do not belong together; copy the data set anew"));
}

/// A mistake of the model. The score is the predicted class's similarity minus the right class's.
struct Mistake {
  double score = 0;
  nlohmann::json example;
};

class ZeroShotTask final : public DataTask<ZeroShotSettings> {
 public:
  std::string rule() const override {
    return "top k: the share of images whose class is among the k nearest class texts (cosine). mean_per_class: the mean over classes of "
           "each class's top 1. macro_f1: the mean over the classes in the data of each class's F1. topK_FIELD:N: top K of the images "
           "whose field is N; topK_FIELD_worst: the smallest of these; topK_FIELD_worst_no_other: the smallest without other_groups." +
           similarity_sentence(settings_.compared);
  }

  void check(const EvaluationContext& context) const override {
    check_conditioned(context, "zero_shot.similarity", settings_.compared.similarity);
    const std::shared_ptr<const Source> source = source_in(context);
    const Candidates candidates = candidates_in(source);
    check_samples(*source, "source", settings_.data.max_samples, asked(candidates),
                  [&](const Sample& sample) { candidates.label_of(sample); });
    if (!settings_.groups.empty())
      check_samples(*source, "source", settings_.data.max_samples, labeled_or_named(),
                    [&](const Sample& sample) { groups_of(sample, settings_.groups); });
    if (!settings_.label_field.empty())
      check_samples(*source, "source", settings_.data.max_samples, asked(candidates),
                    [&](const Sample& sample) { check_label_field(sample, settings_.label_field); });
  }

  std::vector<std::string> metric_names(const Embedder&) const override {
    if (!settings_.groups.empty()) return {};  // the data say which groups there are
    std::vector<std::string> out;
    for (const std::int64_t k : settings_.topk) out.push_back(concat("top", k));
    out.push_back("mean_per_class");
    if (settings_.macro_f1) out.push_back("macro_f1");
    return out;
  }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    return measure_by_similarity("zero_shot", settings_.compared, embedder, context,
                                 [&](const Embedder& model) { return measure(model, context); });
  }

 private:
  // The measurement of embeddings that are cut.
  struct AtWidth {
    CutEmbedder embedder;
    TowerFeatures classes;
    metrics::ZeroShotMeter meter;
  };

  Joined joined() const override { return Joined::none; }

  Candidates candidates_in(const std::shared_ptr<const Source>& source) const {
    if (settings_.labels.empty()) return candidates_for(settings_.classes, source, "zero_shot");
    Candidates out{.source = source,
                   .task = "zero_shot",
                   .names = settings_.classes.items,
                   .place = {},
                   .source_names = source->class_names()};
    out.place.assign(static_cast<std::size_t>(std::ranges::max(settings_.labels) + 1), -1);
    for (std::size_t i = 0; i < settings_.labels.size(); ++i)
      out.place[static_cast<std::size_t>(settings_.labels[i])] = static_cast<std::int64_t>(i);
    return out;
  }

  /// Returns the requirement that a sample has one of the classes. `candidates` must outlive the result.
  Required asked(const Candidates& candidates) const {
    Required out = candidates.asked();
    if (settings_.labels.empty()) return out;
    out.in = [in = out.in, labels = std::set<std::int64_t>(settings_.labels.begin(), settings_.labels.end())](const Sample& sample) {
      return labels.contains(sample.label) && in(sample);
    };
    out.reason = "other_class";
    out.name = "one of the labels in zero_shot.labels";
    return out;
  }

  TaskResult measure(const Embedder& embedder, const EvaluationContext& context) const {
    Pass pass = pass_over_data(embedder, context);
    const Candidates candidates = candidates_in(pass.source);
    const std::int64_t count = std::ssize(candidates.names);
    metrics::ZeroShotMeter meter(count, settings_.topk);
    const TowerFeatures classes = embed_classes(embedder, candidates.names, settings_.templates);

    std::vector<AtWidth> cut;
    for (const CutEmbedder& each : cut_embedders(embedder, context.widths, classes.global.size(1)))
      cut.push_back({each, embed_classes(each, candidates.names, settings_.templates), metrics::ZeroShotMeter(count, settings_.topk)});

    TaskResult result;
    result.classes = candidates.names;
    add_note(candidates.matched, result);
    result.prompts = settings_.templates.items;
    std::vector<std::int64_t> labels;
    std::vector<std::vector<std::int64_t>> groups(settings_.groups.size());  // of each image, for each field
    pass.required = asked(candidates);
    pass.reads_pixels = context.images;
    ExampleChooser examples(pass.total());
    std::vector<Mistake> mistakes;
    auto spread = nlohmann::json::array();
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      const at::Tensor similarity = embedder.similarity(features, classes);  // [B, C]
      const std::vector<std::int64_t> own = candidates.labels_of(samples);
      meter.add(similarity, at::tensor(own, at::kLong));
      for (AtWidth& each : cut)
        each.meter.add(each.embedder.similarity(each.embedder.cut(features), each.classes), at::tensor(own, at::kLong));
      labels.insert(labels.end(), own.begin(), own.end());
      for (std::size_t i = 0; !settings_.label_field.empty() && i < samples.size(); ++i)
        check_label_field(samples[i].sample, settings_.label_field);
      for (std::size_t i = 0; !groups.empty() && i < samples.size(); ++i) {
        const std::vector<std::int64_t> numbers = groups_of(samples[i].sample, settings_.groups);
        for (std::size_t g = 0; g < groups.size(); ++g) groups[g].push_back(numbers[g]);
      }
      for (std::size_t i = 0; context.images && i < samples.size(); ++i) {
        const at::Tensor row = similarity[static_cast<std::int64_t>(i)];
        const auto shown = [&] { return example(samples[i], own[i], row, context.logit_scale, candidates.names); };
        if (examples.choose(samples[i].index)) spread.push_back(shown());
        const double margin = own[i] < 0 ? 0 : (row.max() - row[own[i]]).item<double>();
        if (margin > 0) offer(mistakes, margin, kFailures, [&] { return Mistake{.example = shown()}; });
      }
    });
    const metrics::ZeroShotScores scores = meter.scores();
    add_hits("top", settings_.topk, scores.rank, result, count);
    result.add_share("mean_per_class", scores.mean_per_class);
    result.chance["mean_per_class"] = 1 / static_cast<double>(count);
    if (settings_.macro_f1) result.add_share("macro_f1", metrics::macro_f1(scores.prediction, at::tensor(labels, at::kLong), count));
    for (std::size_t g = 0; g < groups.size(); ++g) add_group_shares(settings_.groups[g], groups[g], scores.rank, result);
    for (const AtWidth& each : cut) {
      const metrics::ZeroShotScores at_width = each.meter.scores();
      add_hits(each.embedder.prefix() + "top", settings_.topk, at_width.rank, result, count);
      result.add_share(each.embedder.prefix() + "mean_per_class", at_width.mean_per_class);
    }
    if (const auto most = *std::ranges::max_element(settings_.topk); most >= count)
      result.notes.push_back(concat("top", most, " is 100% for any model, because there are only ", count, " classes"));
    result.outcomes.push_back(hits_within("mean_per_class", scores.rank, 1, {}, at::tensor(labels, at::kLong)));
    if (!context.images) return result;
    auto surest = nlohmann::json::array();
    for (const Mistake& mistake : mistakes) surest.push_back(mistake.example);
    add_examples("Mistakes", "The mistakes in which the model is most confident, the most confident first.", surest, result);
    add_examples("Examples", "Spread evenly over the data.", spread, result);
    add_classes(candidates.names, labels, scores, result);
    return result;
  }

  /// Adds the accuracies within the groups of a field, such as top1_region:0 and top1_region_worst, and the numbers of their images.
  void add_group_shares(const std::string& field, const std::vector<std::int64_t>& numbers, const at::Tensor& ranks,
                        TaskResult& result) const {
    for (const std::int64_t k : settings_.topk) {
      const auto shares = metrics::group_shares(ranks.lt(k), at::tensor(numbers, at::kLong));
      const std::string prefix = concat("top", k, "_", field);
      const auto is_other = [&](std::int64_t group) {
        return contains(settings_.other_groups, concat(field, ":", group));
      };
      std::optional<double> worst_no_other;
      bool has_other = false;
      for (std::int64_t group = 0; group < shares.count.size(0); ++group) {
        const auto count = shares.count[group].item<std::int64_t>();
        if (k == settings_.topk.front()) result.add_number(concat("count_", field, ":", group), static_cast<double>(count));
        if (count > 0) result.add_share(concat(prefix, ":", group), shares.share[group].item<double>());
        has_other |= is_other(group);
        if (const double share = shares.share[group].item<double>(); count > 0 && !is_other(group))
          worst_no_other = std::min(worst_no_other.value_or(share), share);
      }
      result.add_share(prefix + "_worst", shares.share[shares.worst].item<double>());
      if (has_other && worst_no_other) result.add_share(prefix + "_worst_no_other", *worst_no_other);
      result.notes.push_back(concat(prefix, "_worst is that of group ", shares.worst, ", which has ",
                                    with_thousands(shares.count[shares.worst].item<std::int64_t>()), " images"));
    }
  }

  static nlohmann::json example(const EvaluationSample& sample, std::int64_t label, const at::Tensor& similarity, double logit_scale,
                                const std::vector<std::string>& names) {
    const at::Tensor shares = (similarity * logit_scale).softmax(0);
    const at::Tensor best = metrics::best_first(similarity, kBars);
    const auto name_of = [&](std::int64_t index) { return index < 0 ? "none" : names[static_cast<std::size_t>(index)]; };
    nlohmann::json out = {{"images", {report::image_part(to_image(sample.pixels), sample.sample.key)}}, {"truth", name_of(label)}};
    for (std::int64_t i = 0; i < best.size(0); ++i) {
      const auto index = best[i].item<std::int64_t>();
      if (i == 0) out["right"] = index == label;
      out["bars"].push_back({name_of(index), shares[index].item<double>(), index == label});
    }
    return out;
  }

  static void add_examples(const std::string& title, const std::string& note, const nlohmann::json& examples, TaskResult& result) {
    const char* const reading =
        " Next to each image is its true class: \u2713 if the text of this class is the nearest, \u2717 if another one is. Below it are "
        "the nearest classes with the model's probabilities among all classes; the true one is outlined.";
    add_items({{"type", "image"}, {"title", title}, {"note", note + (result.cards.empty() ? reading : "")}, {"layout", "examples"}},
              examples, result);
  }

  static void add_classes(const std::vector<std::string>& names, const std::vector<std::int64_t>& labels,
                          const metrics::ZeroShotScores& scores, TaskResult& result) {
    add_bars("Accuracy by class", names, scores.per_class, result);
    if (names.size() > kGreatestConfusion) return;
    std::vector<std::vector<std::int64_t>> confusion(names.size(), std::vector<std::int64_t>(names.size(), 0));
    const auto* guesses = scores.prediction.const_data_ptr<std::int64_t>();
    for (std::size_t n = 0; n < labels.size(); ++n)
      ++confusion[static_cast<std::size_t>(labels[n])][static_cast<std::size_t>(guesses[n])];
    result.add_card({{"type", "table"},
                     {"title", "Confusion"},
                     {"note", "Rows: true class; columns: predicted class; number of images."},
                     {"names", names},
                     {"rows", confusion}});
  }
};

}  // namespace

void add_zero_shot(TaskRegistry& list) {
  add_task<ZeroShotTask>(list, "zero_shot", "zero-shot classification with prompts");
}

}  // namespace tessera
