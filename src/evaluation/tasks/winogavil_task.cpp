// The task winogavil: which candidate images belong to a cue (Bitton et al. 2022).
#include <algorithm>
#include <map>
#include <numeric>

#include "src/evaluation/tasks/data_task.h"

namespace tessera {
namespace {

struct WinogavilTaskSettings {
  TaskData data;
};

template <class Visitor>
void fields(Visitor& v, WinogavilTaskSettings& s) {
  data_fields(v, s.data);
}

nlohmann::json fields_of(const Sample& sample) {
  return nlohmann::json::parse(sample.fields, nullptr, false);
}

/// A cue with its candidates, whose images are consecutive rows of the embeddings.
struct Instance {
  std::string cue;
  std::int64_t first = 0, candidates = 0;  // the first row, and how many candidates the data have
  std::vector<bool> associated;            // of each candidate that was embedded
};

/// Returns the cue as DataComp's evaluator asks for it: "An orange", "A wave".
std::string prompt_of(const std::string& cue) {
  std::string text = cue;
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return (std::string_view("aeiou").find(text.front()) == std::string_view::npos ? "A " : "An ") + text;
}

/// Returns |predicted & associated| / |predicted or associated|, where as many candidates are predicted as are associated: those of the
/// greatest scores, and of equal scores the later one. scores: [candidates] double.
double jaccard(const std::vector<double>& scores, const std::vector<bool>& associated) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return scores[i]; });
  const auto wanted = std::ranges::count(associated, true);
  const auto hits = std::count_if(order.end() - wanted, order.end(), [&](std::size_t i) { return associated[i]; });
  return wanted == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(2 * wanted - hits);
}

class WinogavilTask final : public DataTask<WinogavilTaskSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    Pass pass = pass_over_data(embedder, context);
    pass.reads_pixels = false;
    TaskResult result;
    std::map<std::int64_t, Instance> read;  // by number
    std::int64_t row = 0;
    const TowerFeatures images = pass.run_and_keep(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures&) {
      for (const EvaluationSample& sample : samples) {
        const nlohmann::json fields = fields_of(sample.sample);
        Instance& instance = read[fields.at("instance")];
        if (instance.associated.empty()) instance = {fields.at("cue"), row, fields.at("candidates"), {}};
        instance.associated.push_back(fields.at("associated"));
        ++row;
      }
    });
    if (const auto broken = static_cast<std::int64_t>(std::erase_if(read, [](const auto& each) {
          return std::ssize(each.second.associated) < each.second.candidates;
        })))
      result.skipped["instance_without_picture"] += broken;
    if (read.empty()) user_error(pass.source->describe(), ": no instance has all its images");
    measure(embedder, images, read, result);
    return result;
  }

 private:
  Joined joined() const override { return Joined::none; }
  Required required() const override {
    return {[](const Sample& sample) { return fields_of(sample).is_object() && fields_of(sample).contains("associated"); }, "no_cue",
            "a cue (source winogavil)"};
  }

  static void measure(const Embedder& embedder, const TowerFeatures& images,
                      const std::map<std::int64_t, Instance>& instances, TaskResult& result) {
    std::vector<std::string> prompts;
    for (const auto& [number, instance] : instances) prompts.push_back(prompt_of(instance.cue));
    const TowerFeatures texts = embed_compactly(embedder, prompts);
    std::vector<double> scores;
    std::vector<std::int64_t> sizes, first;
    for (const auto& [number, instance] : instances) {
      const std::int64_t text = std::ssize(scores);
      const at::Tensor similarity =
          embedder.similarity(slice(images, {instance.first, instance.first + instance.candidates}), slice(texts, {text, text + 1}));
      scores.push_back(jaccard(to_vector<double>(similarity.squeeze(1).to(at::kDouble)), instance.associated));
      sizes.push_back(instance.candidates);
      first.push_back(instance.first);
    }
    result.texts = std::ssize(prompts);
    result.prompts = {"A CUE", "An CUE"};
    const at::Tensor all = at::tensor(scores, at::kDouble), size = at::tensor(sizes, at::kLong), sample = at::tensor(first, at::kLong);
    const auto add = [&](const std::string& name, const at::Tensor& chosen) {
      const at::Tensor own = all.masked_select(chosen);
      if (own.numel() > 0) add_share(name, own.mean().item<double>(), {.part = own, .sample = sample.masked_select(chosen)}, result);
    };
    add("avg_jaccard_score", size.ge(0));
    for (const std::int64_t candidates : {5, 6, 10, 12}) add(concat("jaccard_score_", candidates), size.eq(candidates));
    add("jaccard_score_5-6", size.le(6));
    add("jaccard_score_10-12", size.ge(10));
  }
};

}  // namespace

void add_winogavil(TaskRegistry& list) {
  add_task<WinogavilTask>(list, "winogavil", "which candidate images belong to a cue (WinoGAViL)",
                          "For a cue with K images that belong to it among its candidates, the K candidates nearest to "
                          "the text \"A CUE\" or \"An CUE\" are "
                          "predicted. jaccard_score: the number of predicted images that belong to the cue, divided by "
                          "the number of images that are predicted or "
                          "belong to it, averaged over the cues with this number of candidates (5-6: at most 6; 10-12: "
                          "at least 10; avg: all).");
}

}  // namespace tessera
