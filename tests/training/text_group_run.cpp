#include "tests/training/text_group_run.h"

#include "tests/training/tiny_run.h"

namespace tessera {

Config text_group_config(const std::string& run, const std::vector<std::string>& overrides) {
  std::vector<std::string> all = {
      "model.image.encoder={name: groupvit, patch_size: 4, width: 16, depths: [1, 1, 1], heads: [2, 2, 2], "
      "num_group_tokens: [4, 2, 0], num_output_groups: [4, 2]}",
      "model.image.readout={name: groups, output_dim: 8}",
      "model.image.projection={name: none}",
      "model.text.encoder={name: text_group_encoder, width: 16, heads: 2, token_layers: 1, group_layers: 1, "
      "num_groups: 3}",
      "model.text.readout={name: groups, output_dim: 8}",
      "model.text.projection={name: none}",
      "objective={name: text_group, decoder: {context_length: 24}}"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return tiny_config(run, all, "text_group");
}

}  // namespace tessera
