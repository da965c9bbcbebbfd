#include <torch/nn/modules/linear.h>

#include <tessera/models/tower.h>
#include <tessera/objectives/objective.h>
#include <tessera/ops/numeric.h>
#include <tessera/sample.h>
#include <tessera/training/trainer_main.h>
using namespace tessera;

struct Settings {
  std::int64_t classes = 10;
};
void fields(auto& v, Settings& s) {
  v("classes", s.classes, "number of classes", config::at_least(2));
}

/// Predicts the class of an image from the mean of the image encoder's tokens.
struct Classify : Objective {
  Classify(const Settings& settings, const ObjectiveContext& context)
      : linear_(register_module("linear", std::make_shared<torch::nn::LinearImpl>(context.image_width, settings.classes))) {}
  Needs needs() const override {
    const auto mean = [](const TowerInput&, const Encoded& encoded) { return encoded.tokens.mean(1); };  // [B, w]
    const auto label = [](const Sample& sample) {
      if (sample.label < 0) throw SampleError("no_label", "sample " + sample.key + " has no label");
      return at::scalar_tensor(sample.label, at::kLong);
    };
    return {.images = {{"image", {.extras = {{"mean_token", {mean}}}}}},
            .texts = {},
            .extras = {{"label", {label, at::zeros({}, at::kLong)}}}};
  }
  Losses forward(const Features& features, const StepContext&) override {
    const NoAutocast no_autocast;
    const at::Tensor logits = linear_->forward(to_compute(features.image().extras.at("mean_token")));
    return {at::cross_entropy_loss(logits, features.extras.at("label")), {}};
  }
  std::shared_ptr<torch::nn::LinearImpl> linear_;
};

int main(int argc, char** argv) {
  objectives().add<Settings>("classify", "cross-entropy of classes",
                             [](auto& s, auto& context) { return std::make_shared<Classify>(s, context); });
  return trainer_main(argc, argv);
}
