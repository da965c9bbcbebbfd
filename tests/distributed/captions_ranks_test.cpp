// Runs those reference cases that have several captions per image, each case split over several ranks.
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/objectives/flair.h"
#include "tests/distributed/ranks.h"
#include "tests/reference/case.h"
#include "tests/support/golden.h"
#include <tessera/io/safetensors.h>
#include <tessera/objectives/objective.h>

namespace tessera {
namespace {

std::shared_ptr<Objective> objective_of(const probe::Case& given) {
  const auto objective = objectives().make({given.module, given.settings}, given.module,
                                           {.embed_dim = given.inputs.at("text_global").size(-1)});
  const at::NoGradGuard no_grad;
  for (const auto& item : objective->named_parameters())
    if (given.parameters.contains(item.key())) item.value().copy_(given.parameters.at(item.key()));
  return objective;
}

Tensors captions_rank(const probe::Case& given, const ProcessGroup& group) {
  const auto objective = objective_of(given);
  std::map<std::string, at::Tensor> leaves;
  const auto part = [&](const char* name) {
    if (!given.inputs.contains(name)) return at::Tensor();
    at::Tensor values = part_of(given.inputs.at(name), group).clone();
    if (values.is_floating_point()) leaves[name] = values.requires_grad_(true);
    return values;
  };
  const bool one_caption = given.module == "clip" || given.module == "distill" || given.module == "affinity";
  const std::string view = one_caption ? "caption" : "captions";
  Features features;
  features.images["image"].global = part("image_global");
  features.images["image"].tokens = part("image_tokens");
  features.texts[view].global = part("text_global");
  features.texts[view].present = part("caption_mask");
  if (given.inputs.contains("teacher_image")) {
    features.teacher_images["image"].global = part_of(given.inputs.at("teacher_image"), group);
    features.teacher_texts[view].global = part_of(given.inputs.at("teacher_text"), group);
  }
  features.duplicates.image_group = part("image_ids");
  features.duplicates.captions_group = part("caption_ids");
  StepContext context;
  context.group = group;
  if (given.parameters.contains("teacher_logit_scale"))
    context.teacher_scale = std::exp(given.parameters.at("teacher_logit_scale").item<double>());
  auto* flair = dynamic_cast<Flair*>(objective.get());
  const bool given_slots = given.inputs.contains("negative_slots");
  const at::Tensor loss = flair != nullptr && given_slots
                              ? flair->forward(features, context, given.inputs.at("negative_slots")).total
                              : objective->forward(features, context).total;
  loss.backward();
  Tensors out{{"out.loss", loss.detach().clone()}};
  for (const auto& item : objective->named_parameters()) {
    at::Tensor gradient = item.value().grad();
    out["grad." + item.key()] = gradient.defined() ? gradient.clone() : at::zeros_like(item.value());
  }
  average(out, group);
  for (const auto& [name, values] : leaves)
    out["grad.in." + name] =
        group.all_gather(values.grad().defined() ? values.grad().contiguous() : at::zeros_like(values)) / group.size();
  return out;
}

std::vector<std::string> caption_case_files() {
  std::vector<std::string> out;
  for (const auto& [system, prefix] : std::vector<std::pair<std::string, std::string>>{
           {"captions", "multi_positive_"}, {"captions", "subcaption_"}, {"flair", "flair_"},
           {"teachers", "affinity_"}, {"teachers", "distill_"}, {"teachers", "matryoshka_"}})
    for (const std::string& path : golden_cases(system, prefix)) out.push_back(path);
  return out;
}

class CaptionsOverRanks : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, CaptionsOverRanks, testing::ValuesIn(caption_case_files()), golden_name);

TEST_P(CaptionsOverRanks, MatchTheGlobalBatch) {
  const probe::Case given = probe::load_case(GetParam());
  if (!given.outputs.contains("loss")) GTEST_SKIP() << "the case has scores and no loss";
  const std::int64_t images = given.inputs.at("text_global").size(0);
  for (const int size : {2, 3, 4, 5}) {
    if (images % size != 0) continue;
    const auto ranks = run_ranks(
        size, [&](const ProcessGroup& group) { return captions_rank(probe::load_case(GetParam()), group); }, "gloo");
    for (const Tensors& rank : ranks) {
      EXPECT_TRUE(at::allclose(rank.at("out.loss"), given.outputs.at("loss"), 1e-5, 1e-5));
      for (const auto& [name, gradient] : given.input_gradients)
        EXPECT_TRUE(at::allclose(rank.at("grad.in." + name), gradient, 1e-4, 1e-5)) << name;
      for (const auto& [name, gradient] : given.parameter_gradients)
        EXPECT_TRUE(at::allclose(rank.at("grad." + name), gradient, 1e-4, 1e-5)) << name;
    }
  }
}

}  // namespace
}  // namespace tessera
