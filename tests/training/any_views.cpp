#include "tests/training/any_views.h"

#include <csignal>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "src/data/shapes/shapes.h"
#include "tests/support/shards.h"
#include "tests/training/tiny_run.h"
#include <tessera/objectives/objective.h>

namespace tessera {
namespace {

// Returns the mean over the batch of the squared distances between rows. A row that is absent in `a` or `b` counts as 0.
at::Tensor distance(const TowerFeatures& a, const TowerFeatures& b) {
  at::Tensor each = (a.global - b.global).square().sum(1);
  for (const at::Tensor& present : {a.present, b.present})
    if (present.defined()) each = at::where(present, each, at::zeros({}, each.options()));
  return each.mean();
}

class AnyViews : public Objective {
 public:
  explicit AnyViews(const ObjectiveContext& context) : head_(context.embed_dim, 6) { register_module("head", head_); }

  Losses forward(const Features& features, const StepContext& context) override {
    if (context.step == killed_at()) ::raise(SIGKILL);
    const double late = static_cast<double>(context.step) / static_cast<double>(context.total_steps);
    const TowerFeatures& image = features.image();
    const at::Tensor pairs = distance(image, features.text());
    const at::Tensor parts = distance(features.image("local"), features.text("summary"));
    const at::Tensor regions = distance(features.image("roi"), features.text());
    auto& teacher = static_cast<AnyViews&>(*context.teacher);
    const at::Tensor goal = teacher.head_(features.teacher_image().global).softmax(1).detach();
    const at::Tensor self = -(goal * head_(image.global).log_softmax(1)).sum(1).mean();
    const at::Tensor words = features.text().input.mask.to(at::kFloat).sum(1).mean() * image.tokens.square().mean();
    return {pairs + parts + regions + late * self + 0.01 * words,
            {{"pairs", pairs}, {"parts", parts}, {"regions", regions}, {"self", self}}};
  }

  Needs needs() const override {
    return {.images = {{"image", {.tokens = true, .teacher = true}},
                       {"local", {}},
                       {"roi", {.regions = true, .optional = true}}},
            .texts = {{"caption", {.input_ids = true}}, {"summary", {.optional = true}}}};
  }
  bool follows_step() const override { return true; }
  double teacher_momentum(const StepContext& step) const override {
    return 0.8 + 0.2 * static_cast<double>(step.step) / static_cast<double>(step.total_steps);
  }

 private:
  torch::nn::Linear head_;
};

class ShapesWithHoles : public IndexedSource {
 public:
  explicit ShapesWithHoles(const ShapesSettings& settings) : shapes_(settings) {}
  std::int64_t size() const override { return shapes_.size(); }
  std::vector<std::string> class_names() const override { return shapes_.class_names(); }
  std::string describe() const override { return "shapes with holes"; }
  Sample get(std::int64_t index) const override {
    Sample sample = shapes_.get(index);
    if (index % 2 == 0) sample.summary.clear();
    if (index % 3 == 0) sample.regions.clear();
    return sample;
  }

 private:
  ShapesSource shapes_;
};

}  // namespace

void register_any_views() {
  if (objectives().contains("test_any_views")) return;
  objectives().add<config::NoSettings>(
      "test_any_views", "every kind of view",
      [](const config::NoSettings&, const ObjectiveContext& context) { return std::make_shared<AnyViews>(context); });
}

std::int64_t& killed_at() {
  static std::int64_t step = -1;
  return step;
}

std::string write_shards_with_holes(const std::string& folder, std::int64_t samples) {
  ShapesSettings shapes;
  shapes.size = samples;
  shapes.image_size = 16;
  shapes.regions = true;
  write_shards(ShapesWithHoles(shapes), {.folder = folder});
  return folder + "/*.tar";
}

Config any_views_config(const std::string& run, const std::string& shards, const std::vector<std::string>& overrides) {
  register_any_views();
  const std::vector<std::string> all = {"data.train={name: webdataset, path: '" + shards + "'}",
                                        "data.loader.views={local: {image_size: 8}}",
                                        "model.image.encoder.regions={width: 2052, first_block: 0}",
                                        "model.image.encoder.patch_dropout=0.25",
                                        "training.steps=6"};
  return tiny_config(run, with(all, overrides), "test_any_views");
}

}  // namespace tessera
