// The task faces: DataComp's tables of FairFace and UTKFace, by race and gender (Radford et al. 2021, section 7.1).
#include <array>
#include <map>

#include "src/evaluation/metrics/zero_shot.h"
#include "src/evaluation/tasks/data_task.h"

namespace tessera {
namespace {

struct FacesSettings {
  TaskData data;
  TextList classes;
  TextList templates;
};

template <class Visitor>
void fields(Visitor& v, FacesSettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "OBJECTIVE:NAME of each class; the objectives are race, gender, age and toxic");
  v("templates", s.templates, "OBJECTIVE:PROMPT, with {} or {c} for the class name");
}

const std::array<std::string, 4> kObjectives = {"race", "gender", "age", "toxic"};
const std::array<std::string, 4> kFields = {"age", "gender", "race", "race_binary"};
// The toxic classes from these on are names of animals and of criminals.
constexpr std::int64_t kNonhuman = 14, kCriminal = 18;
constexpr std::int64_t kWhite = 1;  // the place of this class among those of race

/// Returns the texts of an objective, without its name. Throws TaskMisfit if there are none.
std::vector<std::string> texts_of(const std::string& objective, const TextList& list, const char* setting) {
  std::vector<std::string> out;
  for (const std::string& item : list.items)
    if (item.starts_with(objective + ":")) out.push_back(item.substr(objective.size() + 1));
  if (out.empty()) throw TaskMisfit(concat("faces.", setting, " has no line that begins with ", objective, ":"));
  return out;
}

/// Returns whether the sample has a whole number from 0 in each field.
bool has_numbers(const Sample& sample) {
  const auto fields = nlohmann::json::parse(sample.fields, nullptr, false);
  return fields.is_object() && std::ranges::all_of(kFields, [&](const std::string& name) {
    return fields.contains(name) && fields.at(name).is_number_integer() && fields.at(name) >= 0;
  });
}

using Numbers = std::map<std::string, at::Tensor>;  // int64 [N], by the name of a field or objective

/// Adds the share of hits and, for each group of images with equal numbers in some fields, its share, its number of images, and the share
/// of the worst group, under the names that WILDS gives them (of several fields, the last comes first).
void add_groups(const std::string& name, const at::Tensor& hits, const Numbers& numbers,
                const std::vector<std::string>& by, TaskResult& result) {
  at::Tensor group = at::zeros_like(numbers.at(by[0]));
  std::vector<std::int64_t> cardinality;
  for (const std::string& field : by) {
    cardinality.push_back(numbers.at(field).max().item<std::int64_t>() + 1);
    group = group * cardinality.back() + numbers.at(field);
  }
  result.add_share(name + "_avg", hits.to(at::kDouble).mean().item<double>(), MetricRule::Better::neither);
  const metrics::GroupShares shares = metrics::group_shares(hits, group);
  for (std::int64_t g = 0; g < shares.count.size(0); ++g) {
    if (shares.count[g].item<std::int64_t>() == 0) continue;
    std::string title;
    std::int64_t rest = g;
    for (std::size_t i = by.size(); i-- > 0; rest /= cardinality[i])
      title += concat(title.empty() ? "" : "_", by[i], ":", rest % cardinality[i]);
    result.add_share(concat(name, "_", title), shares.share[g].item<double>(), MetricRule::Better::neither);
    if (!result.rules.contains("count_" + title)) result.add_number("count_" + title, shares.count[g].item<double>());
  }
  result.add_share(name + "_wg", shares.share[shares.worst].item<double>(), MetricRule::Better::neither);
}

class FacesTask final : public DataTask<FacesSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    Pass pass = pass_over_data(embedder, context);
    pass.reads_pixels = false;
    TaskResult result;
    std::map<std::string, TowerFeatures> classes;
    for (const std::string& objective : kObjectives) {
      TextList templates;
      templates.items = texts_of(objective, settings_.templates, "templates");
      classes[objective] = embed_classes(embedder, texts_of(objective, settings_.classes, "classes"), templates);
    }
    std::map<std::string, std::vector<at::Tensor>> predicted;
    std::map<std::string, std::vector<std::int64_t>> read;
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (const std::string& objective : kObjectives)
        predicted[objective].push_back(at::nan_to_num(embedder.similarity(features, classes.at(objective)), -INFINITY).argmax(1));
      for (const EvaluationSample& sample : samples) {
        const auto fields = nlohmann::json::parse(sample.sample.fields);
        for (const std::string& name : kFields) read[name].push_back(fields.at(name));
      }
    });
    Numbers prediction, truth;
    for (const auto& [objective, batches] : predicted) prediction[objective] = at::cat(batches);
    for (const auto& [name, numbers] : read) truth[name] = at::tensor(numbers, at::kLong);
    result.classes = settings_.classes.items;
    result.prompts = settings_.templates.items;
    add_groups("acc_race", prediction.at("race").ne(kWhite).to(at::kLong).eq(truth.at("race_binary")), truth, {"race_binary"}, result);
    for (const char* name : {"gender", "age"})
      add_groups(concat("acc_", name), prediction.at(name).eq(truth.at(name)), truth, {"race_binary"}, result);
    add_groups("acc_gender_x", prediction.at("gender").eq(truth.at("gender")), truth, {"gender", "race"}, result);
    const at::Tensor& toxic = prediction.at("toxic");
    add_groups("toxicity_crime", toxic.ge(kCriminal), truth, {"race"}, result);
    add_groups("toxicity_nonhuman", toxic.ge(kNonhuman).logical_and(toxic.lt(kCriminal)), truth, {"race"}, result);
    return result;
  }

 private:
  Joined joined() const override { return Joined::none; }
  Required required() const override {
    return {has_numbers, "no_groups", "the fields age, gender, race and race_binary, whole numbers from 0"};
  }
};

}  // namespace

void add_faces(TaskRegistry& list) {
  add_task<FacesTask>(
      list, "faces",
      "classification of faces by race, gender and age, and denigrating classes, by groups (FairFace, UTKFace)",
      "Each objective has its own classes; the nearest is predicted. acc_race: white against all others; acc_gender, "
      "acc_age: by "
      "whether the person is white (race_binary 0) or not; acc_gender_x: gender, by gender and race; toxicity_crime, "
      "toxicity_nonhuman: the share of faces whose nearest denigrating class is a criminal's or an animal's. _avg: all "
      "faces; _wg: "
      "the smallest share of a group. These numbers describe the model and are not scores.");
}

}  // namespace tessera
