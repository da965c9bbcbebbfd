#include "tests/training/stair_run.h"

#include <csignal>

#include "tests/training/tiny_run.h"
#include <tessera/objectives/stair.h>

namespace tessera {
namespace {

std::int64_t stair_killed_at = -1;

class KilledStair : public Stair {
 public:
  using Stair::Stair;
  Losses forward(const Features& features, const StepContext& context) override {
    if (context.step == stair_killed_at) ::raise(SIGKILL);
    return Stair::forward(features, context);
  }
};

const std::vector<std::string>& stair_settings() {
  static const std::vector<std::string> settings = {
      "model.image.readout={name: token_projection}",
      "model.image.projection={name: none}",
      "model.text.readout={name: token_projection, special_token_ids: [1, 2]}",
      "model.text.projection={name: none}",
      "objective={name: stair, lambda_image: 0.1, lambda_text: 0.2, lambda_growth_steps: 3}",
      "optimizer={name: lamb, lr: 1.0e-2}"};
  return settings;
}

}  // namespace

std::string stair_yaml() {
  config::Node tree = config::parse_yaml(tiny_yaml("stair"), "tiny.yaml");
  for (const std::string& each : stair_settings()) config::apply_override(tree, each);
  return config::to_yaml(tree);
}

Config stair_config(const std::string& run, const std::vector<std::string>& overrides) {
  std::vector<std::string> all = stair_settings();
  all.insert(all.end(), overrides.begin(), overrides.end());
  return tiny_config(run, all, "stair");
}

std::string stair_stages() {
  register_test_modules();
  constexpr const char* kName = "test_killed_stair";
  if (!objectives().contains(kName))
    objectives().add<StairSettings>(kName, "stair until a step",
                                    [](const StairSettings& settings, const ObjectiveContext& context) {
                                      return std::make_shared<KilledStair>(settings, context);
                                    });
  return R"(stages:
  - {name: masked_text, objective: {text_token_mask: true}, training: {steps: 4}}
  - name: frozen_image
    objective: {name: test_killed_stair, lambda_image: 0.1, lambda_text: 0.2, lambda_growth_steps: 3}
    parameters: {frozen: [image, token_embedding.weight]}
    training: {steps: 4}
  - {name: joint, optimizer: {lr: 1.0e-3}, training: {steps: 4}}
)";
}

void kill_stair_at(std::int64_t step) {
  stair_killed_at = step;
}

}  // namespace tessera
