#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "tests/models/small_models.h"
#include <tessera/optim/parameter_rules.h>

namespace tessera {
namespace {

std::vector<NamedParameter> parameters() {
  std::vector<NamedParameter> out;
  for (const char* name :
       {"visual.conv1.weight", "visual.positional_embedding", "visual.transformer.resblocks.0.ln_1.weight",
        "visual.transformer.resblocks.1.attn.in_proj_weight", "visual.ln_post.weight", "visual.proj",
        "token_embedding.weight", "transformer.resblocks.0.mlp.c_fc.weight", "ln_final.weight", "text_projection",
        "logit_scale", "objective.prototypes.weight"})
    out.push_back({name, at::ones({2, 2}).set_requires_grad(true)});
  return out;
}

// Returns the parameters of a model, and logit_scale as a parameter of an objective.
std::vector<NamedParameter> parameters_of(const ModelSettings& settings) {
  const DualEncoder model(settings);
  const std::map<std::string, std::int64_t> blocks = model.blocks_behind();
  std::vector<NamedParameter> out{{"logit_scale", at::ones({}).set_requires_grad(true)}};
  for (const auto& [name, tensor] : model.state_dict())
    if (tensor.requires_grad())
      out.push_back({.name = name, .tensor = tensor, .blocks_behind = blocks.contains(name) ? blocks.at(name) : 0});
  return out;
}

std::map<std::string, double> scales(const ParameterSettings& settings) {
  std::map<std::string, double> out;
  for (const NamedParameter& parameter : apply_rules(parameters(), settings)) out[parameter.name] = parameter.lr_scale;
  return out;
}

std::string error_of_rules(const ParameterSettings& settings) {
  return error_of([&] { apply_rules(parameters(), settings); });
}

TEST(ParameterRules, WithoutRulesAllParametersHaveOneRate) {
  const auto all = scales({});
  EXPECT_EQ(all.size(), parameters().size());
  for (const auto& [name, scale] : all) EXPECT_EQ(scale, 1.0) << name;
}

TEST(ParameterRules, FrozenImageTowerLeavesTextAndObjective) {
  auto list = parameters();
  const auto left = apply_rules(list, {.frozen = {"image"}});
  EXPECT_EQ(left.size(), 6u);
  for (const NamedParameter& parameter : left) EXPECT_FALSE(parameter.name.starts_with("visual.")) << parameter.name;
  for (const NamedParameter& parameter : list)
    EXPECT_EQ(parameter.tensor.requires_grad(), !parameter.name.starts_with("visual.")) << parameter.name;
  EXPECT_EQ(scales({.frozen = {"text"}}).count("logit_scale"), 1u) << "the temperature belongs to neither tower";
  EXPECT_EQ(scales({.frozen = {"text"}}).size(), 8u);
  EXPECT_EQ(scales({.frozen = {"*.resblocks.0.*"}}).size(), 10u);
}

TEST(ParameterRules, FactorsOfSeveralGroupsMultiply) {
  const auto all = scales({.groups = {{{"text"}, 0.1}, {{"text_projection", "visual.proj"}, 5.0}}});
  EXPECT_DOUBLE_EQ(all.at("text_projection"), 0.5);
  EXPECT_DOUBLE_EQ(all.at("visual.proj"), 5.0);
  EXPECT_DOUBLE_EQ(all.at("ln_final.weight"), 0.1);
  EXPECT_DOUBLE_EQ(all.at("visual.ln_post.weight"), 1.0);
}

TEST(ParameterRules, FrozenStepsOfSeveralGroupsTakeTheGreatest) {
  const std::vector<NamedParameter> all = apply_rules(
      parameters(), {.groups = {{{"text"}, 1.0, 7}, {{"text_projection", "visual.proj"}, 1.0, 3}, {{"image"}, 2.0}}});
  for (const NamedParameter& each : all) {
    const bool text = matches("text", each.name);
    EXPECT_EQ(each.frozen_steps, text ? 7 : each.name == "visual.proj" ? 3 : 0) << each.name;
  }
}

// Returns the number that follows `key` in a name, if any.
std::optional<int> number_behind(const std::string& name, const std::string& key) {
  const std::size_t at = name.find(key);
  if (at == std::string::npos || std::isdigit(static_cast<unsigned char>(name[at + key.size()])) == 0)
    return std::nullopt;
  return std::stoi(name.substr(at + key.size()));
}

// Returns a parameter's depth by BEiT's rule, applied to OpenCLIP's names: 0 for embeddings and the stem, i + 1 for block i (from
// 0), and n + 1 for everything after the n blocks.
int depth_by_name(const std::string& name, int blocks) {
  if (const auto block = number_behind(name, "resblocks.")) return *block + 1;
  const std::string inner = name.starts_with("visual.") ? name.substr(7) : name;
  if (inner.starts_with("layer")) return number_behind(inner, "layer").value_or(0);
  for (const char* first :
       {"conv", "bn", "class_embedding", "positional_embedding", "ln_pre", "token_embedding", "cls_emb"})
    if (inner.starts_with(first)) return 0;
  return blocks + 1;
}

TEST(ParameterRules, LayerDecayShrinksTowardsTheInputOfEachTower) {
  ModelSettings resnet = small_clip();
  resnet.image = {{"modified_resnet", settings("{width: 8, layers: [2, 1, 1, 1]}")},
                  {"attention_pool_2d", settings("{heads: 4}")},
                  {"none"}};
  resnet.text->projection = {"linear", settings("{embed_dim: 1024}")};
  resnet.preprocessing.image_size = 32;
  ModelSettings pooled = small_sparc();
  pooled.image.encoder.settings.set("final_norm", config::Node::scalar("none"));
  pooled.image.readout = {"attentional_pool", settings("{output_dim: 6, heads: 2, queries: 4}")};
  pooled.image.projection = {"none"};
  struct Case {
    const char* name;
    ModelSettings model;
    int image_blocks;
  };
  for (const Case& given :
       {Case{"ViT", small_clip(), 2}, Case{"ViT that is pooled by attention", pooled, 2}, Case{"ResNet", resnet, 4}}) {
    std::map<int, int> seen;  // how many of the image tower's parameters are at each distance from the output
    for (const NamedParameter& each :
         apply_rules(parameters_of(given.model), {.layer_decay = {.image = 0.5, .text = 0.8}})) {
      const bool image = each.name.starts_with("visual.");
      const int blocks = image ? given.image_blocks : 2;
      const int behind = of_objective(each.name) ? 0 : blocks + 1 - depth_by_name(each.name, blocks);
      EXPECT_DOUBLE_EQ(each.lr_scale, std::pow(image ? 0.5 : 0.8, behind)) << given.name << ": " << each.name;
      if (image) ++seen[behind];
    }
    EXPECT_EQ(static_cast<int>(seen.size()), given.image_blocks + 2) << given.name << ": embeddings, blocks and head";
  }
}

TEST(ParameterRules, ErrorForAPatternThatMatchesNothingNamesIt) {
  EXPECT_EQ(error_of_rules({.frozen = {"imag"}}), "parameters.frozen: imag matches no parameter: did you mean image?");
  auto images_alone = parameters();
  std::erase_if(images_alone, [](const NamedParameter& each) { return matches("text", each.name); });
  EXPECT_EQ(error_of([&] { apply_rules(images_alone, {.frozen = {"text"}}); }),
            "parameters.frozen: text: this model's text tower has no parameters: leave it out");
  EXPECT_EQ(error_of_rules({.groups = {{{"visual.proy"}, 2.0}}}),
            "parameters.groups[0].match: visual.proy matches no parameter: did you mean visual.proj?");
  EXPECT_EQ(error_of_rules({.groups = {{{"image"}, 2.0}, {{}, 2.0}}}), "parameters.groups[1].match: is empty: name the group's parameters");
  EXPECT_EQ(error_of_rules({.frozen = {"*"}}), "parameters.frozen: freezes everything: nothing is left to train");
}

}  // namespace
}  // namespace tessera
