#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
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

std::map<std::string, double> scales(const ParameterSettings& settings) {
  std::map<std::string, double> out;
  for (const NamedParameter& parameter : apply_rules(parameters(), settings)) out[parameter.name] = parameter.lr_scale;
  return out;
}

std::string error_of(const ParameterSettings& settings) {
  try {
    apply_rules(parameters(), settings);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ParameterRules, WithoutRulesEverythingLearnsAtOneRate) {
  const auto all = scales({});
  EXPECT_EQ(all.size(), parameters().size());
  for (const auto& [name, scale] : all) EXPECT_EQ(scale, 1.0) << name;
}

TEST(ParameterRules, LockedImageTowerLeavesTextAndObjective) {
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

TEST(ParameterRules, LayerDecayShrinksTowardsTheInputOfEachTower) {
  const auto all = scales({.layer_decay = {.image = 0.5, .text = 0.8}});
  EXPECT_DOUBLE_EQ(all.at("visual.proj"), 1.0);
  EXPECT_DOUBLE_EQ(all.at("visual.ln_post.weight"), 1.0);
  EXPECT_DOUBLE_EQ(all.at("visual.transformer.resblocks.1.attn.in_proj_weight"), 0.5);
  EXPECT_DOUBLE_EQ(all.at("visual.transformer.resblocks.0.ln_1.weight"), 0.25);
  EXPECT_DOUBLE_EQ(all.at("visual.conv1.weight"), 0.125);
  EXPECT_DOUBLE_EQ(all.at("visual.positional_embedding"), 0.125);
  EXPECT_DOUBLE_EQ(all.at("transformer.resblocks.0.mlp.c_fc.weight"), 0.8);
  EXPECT_DOUBLE_EQ(all.at("token_embedding.weight"), 0.8 * 0.8);
  EXPECT_DOUBLE_EQ(all.at("logit_scale"), 1.0);
  EXPECT_DOUBLE_EQ(all.at("objective.prototypes.weight"), 1.0);
}

TEST(ParameterRules, PatternThatMeansNothingIsNamedWithTheNearestName) {
  EXPECT_EQ(error_of({.frozen = {"imag"}}), "parameters.frozen: imag matches no parameter: did you mean image?");
  EXPECT_EQ(error_of({.groups = {{{"visual.proy"}, 2.0}}}),
            "parameters.groups[0].match: visual.proy matches no parameter: did you mean visual.proj?");
  EXPECT_EQ(error_of({.frozen = {"*"}}), "parameters.frozen: freezes everything: nothing is left to train");
}

}  // namespace
}  // namespace tessera
