#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/point_sets.h"
#include "src/evaluation/tasks/candidates.h"
#include "src/evaluation/tasks/data_task.h"

namespace tessera {
namespace {

struct FeatureMapSettings {
  TaskData data;
  TextList classes;
  TextList templates = {kUsualPrompt};
  std::int64_t samples = 300;
};

template <class Visitor>
void fields(Visitor& v, FeatureMapSettings& s) {
  data_fields(v, s.data);
  v("classes", s.classes, "class names, one per label; empty: those of the source, or captions if it has none");
  v("templates", s.templates, "prompts with {} for the class name; the embeddings of several prompts are averaged");
  v("samples", s.samples, "number of images on the map, spread over the data", config::in_range(4, 1000));
}

std::optional<config::Problem> validate(const FeatureMapSettings& s) { return check_templates(s.templates); }

constexpr std::int64_t kNeighbors = 10;

/// The images on the map and, if there are no classes, their captions.
struct Pinned {
  std::vector<at::Tensor> images;     // embedding of each image, [D]
  std::vector<std::int64_t> classes;  // class of each image; -1 if it has none
  std::vector<std::string> keys, captions;
};

/// Normalizes rows to length 1 and subtracts their mean. Without the subtraction, the map of a contrastive model would show
/// only the gap between images and texts.
at::Tensor centered(const at::Tensor& rows) {
  const at::Tensor unit = metrics::unit_rows(rows);
  return unit - unit.mean(0, true);
}

/// Draws a map of image and text features in two dimensions.
class FeatureMapTask final : public DataTask<FeatureMapSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    Pass pass = pass_over_data(embedder, context);
    pass.reads_pixels = false;
    TaskResult result;
    std::optional<Candidates> classes;
    if (!settings_.classes.items.empty() || !pass.source->class_names().empty())
      classes = candidates_for(settings_.classes, pass.source, "feature_map");
    if (classes) add_note(classes->matched, result);
    const Pinned pinned = pin(pass, classes, result);
    if (pinned.images.size() < 4)
      user_error("feature_map: ", pass.source->describe(), " has only ", pinned.images.size(), " images: a map needs at least 4");
    std::vector<std::string> names;
    at::Tensor texts;
    if (classes) {
      names = classes->names;
      texts = embed_classes(embedder, names, settings_.templates).global;
      result.classes = names;
      result.prompts = settings_.templates.items;
    } else if (!pinned.captions.empty()) {
      texts = embed_texts(embedder, pinned.captions).global;
    }
    at::Tensor rows = centered(at::stack(pinned.images));
    if (texts.defined() && texts.is_sparse()) texts = texts.to_dense();
    if (texts.defined()) rows = at::cat({rows, centered(texts)});
    const metrics::Plane plane = metrics::principal_plane(rows);
    const at::Tensor map = metrics::tsne(rows);
    result.add_number("points", static_cast<double>(rows.size(0)));
    result.add_number("pca_variance", plane.variance_share);
    result.add_number("pca_neighbors_kept", metrics::neighbors_kept(rows, plane.points, kNeighbors));
    result.add_number("tsne_neighbors_kept", metrics::neighbors_kept(rows, map, kNeighbors));
    if (!context.images) return result;
    const std::vector<std::string>& labels = classes ? names : pinned.captions;
    result.add_card({{"type", "curve"},
                     {"title", "Map of features"},
                     {"note", "Dots are images, squares are texts. Points near each other have similar embeddings, as far as two "
                              "dimensions can show it. Images and texts are each centered on their own mean. Distances between far clusters of t-SNE "
                              "have no meaning."},
                     {"plots",
                      {chart("Principal components", plane.points, pinned, names, labels), chart("t-SNE", map, pinned, names, labels)}}});
    return result;
  }

 private:
  Pinned pin(const Pass& pass, const std::optional<Candidates>& classes, TaskResult& result) const {
    Pinned out;
    ExampleChooser chooser(pass.total(), settings_.samples);
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (std::size_t i = 0; i < samples.size(); ++i) {
        if (!chooser.choose(samples[i].index)) continue;
        const Sample& sample = samples[i].sample;
        out.images.push_back(features.global[static_cast<std::int64_t>(i)].clone());
        const bool labeled = classes && (sample.label >= 0 || !sample.class_name.empty());
        out.classes.push_back(labeled ? classes->label_of(sample) : -1);
        out.keys.push_back(sample.key);
        if (!classes && !sample.captions.empty()) out.captions.push_back(sample.captions.front());
      }
    });
    return out;
  }

  static nlohmann::json chart(const std::string& title, const at::Tensor& points, const Pinned& pinned,
                              const std::vector<std::string>& class_names, const std::vector<std::string>& texts) {
    nlohmann::json out = {{"title", title}, {"classes", class_names}};
    for (std::int64_t i = 0; i < points.size(0); ++i) {
      const auto image = static_cast<std::size_t>(i), text = image - pinned.images.size();
      const bool is_text = image >= pinned.images.size();
      const std::int64_t class_index = !is_text ? pinned.classes[image] : class_names.empty() ? -1 : static_cast<std::int64_t>(text);
      out["points"].push_back({{"x", points[i][0].item<float>()},
                               {"y", points[i][1].item<float>()},
                               {"class", class_index},
                               {"is_text", is_text},
                               {"name", is_text ? texts[text] : pinned.keys[image]}});
    }
    return out;
  }
};

}  // namespace

void add_feature_map(TaskRegistry& list) {
  add_task<FeatureMapTask>(
      list, "feature_map", "features of images and class texts in two dimensions (PCA, t-SNE)",
      "pca_variance: the share of the points' variance along two principal components. neighbors_kept: the share of each point's ten "
      "nearest neighbors that are also among its ten nearest on the map.");
}

}  // namespace tessera
