#include "tests/training/stair_run.h"

#include "tests/training/tiny_run.h"

namespace tessera {
namespace {

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
  register_test_modules();
  config::Node tree = config::parse_yaml(tiny_yaml("stair"), "tiny.yaml");
  for (const std::string& each : stair_settings()) config::apply_override(tree, each);
  return config::to_yaml(tree);
}

Config stair_config(const std::string& run, const std::vector<std::string>& overrides) {
  return tiny_config(run, with(stair_settings(), overrides), "stair");
}

std::string stair_stages() {
  return R"(stages:
  - {name: masked_text, objective: {text_token_mask: true}, training: {steps: 4}}
  - name: frozen_image
    parameters: {frozen: [image, token_embedding.weight]}
    training: {steps: 4}
  - {name: joint, optimizer: {lr: 1.0e-3}, training: {steps: 4}}
)";
}

}  // namespace tessera
