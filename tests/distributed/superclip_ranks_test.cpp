// Runs the reference cases of `superclip`, with each batch split among several ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/reference/case.h"
#include "tests/support/golden.h"
#include <tessera/io/safetensors.h>
#include <tessera/objectives/objective.h>

namespace tessera {
namespace {

class SuperClipCaseOverRanks : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, SuperClipCaseOverRanks,
                         testing::Values("superclip_two_ranks", "superclip_first_step", "superclip_later",
                                         "superclip_evaluation"));

// Returns a rank's results for its own images. With `counted`, before_step() first counts the images in two micro-batches.
Tensors superclip_rank(const probe::Case& given, const ProcessGroup& group, bool counted) {
  const bool training = given.settings.find("training")->text() == "true";
  config::Node settings = given.settings;
  settings.erase("training");  // the module's mode, not one of its settings
  const auto objective = objectives().make({"superclip", settings}, "superclip", {});
  {
    const at::NoGradGuard no_grad;
    for (const auto& list : {objective->named_parameters(), objective->named_buffers()})
      for (const auto& item : list) item.value().copy_(given.parameters.at(item.key()));
  }
  const auto part = [&](const char* name) { return part_of(given.inputs.at(name), group).clone(); };
  Features features;
  const at::Tensor patches = part("image_features").requires_grad_(true);
  features.images["image"].encoder_tokens = patches;
  const TowerInput captions = text_input(part("text_ids"), part("text_mask"));
  features.texts["caption"].input = captions;
  StepContext context;
  context.group = group;
  context.training = training;
  if (counted && training) {
    Batch whole;
    whole.texts["caption"] = captions;
    whole.keys.resize(static_cast<std::size_t>(patches.size(0)));
    const Batch first = slice(whole, 0, 1), rest = slice(whole, 1, patches.size(0) - 1);
    objective->before_step({&first, &rest}, context);
    context.counted = true;
  }
  const at::Tensor loss = objective->forward(features, context).total;
  loss.backward();
  Tensors out{{"out.loss", loss.detach().clone()}};
  for (const auto& item : objective->named_parameters()) out["grad." + item.key()] = item.value().grad().clone();
  average(out, group);
  // patches.grad() is the gradient of the sum of all ranks' losses. The division turns it into the gradient of the mean of these losses.
  out["grad.in"] = group.all_gather(patches.grad()) / group.size();
  for (const auto& item : objective->named_buffers()) out["updated." + item.key()] = item.value().clone();
  return out;
}

TEST_P(SuperClipCaseOverRanks, MatchesTheGlobalBatchOnEveryRank) {
  const std::string path = test_data("golden/superclip/" + GetParam() + ".safetensors");
  const auto metadata = io::load_safetensors_metadata(path);
  const int size = metadata.contains("world_size") ? std::stoi(metadata.at("world_size")) : 2;
  for (const bool counted : {false, true}) {
    const auto ranks = run_ranks(
        size, [&](const ProcessGroup& group) { return superclip_rank(probe::load_case(path), group, counted); }, "gloo");
    const probe::Case given = probe::load_case(path);
    for (const Tensors& rank : ranks) {
      EXPECT_TRUE(at::allclose(rank.at("out.loss"), given.outputs.at("loss"), 1e-5, 1e-6));
      EXPECT_TRUE(at::allclose(rank.at("grad.in"), given.input_gradients.at("image_features"), 1e-4, 1e-6));
      for (const auto& [name, gradient] : given.parameter_gradients)
        EXPECT_TRUE(at::allclose(rank.at("grad." + name), gradient, 1e-4, 1e-6)) << name;
      for (const char* name : {"updated.document_count", "updated.caption_count"})
        EXPECT_TRUE(at::equal(rank.at(name), given.outputs.at(name))) << name;
    }
  }
}

}  // namespace
}  // namespace tessera
