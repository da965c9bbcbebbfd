// Compares losses over ranks with the losses of the same global batch in one process.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/distributed/gradient_reducer.h"
#include "src/objectives/stair.h"
#include "tests/distributed/ranks.h"
#include "tests/objectives/pairs.h"
#include "tests/ops/largest_allocation.h"
#include "tests/support/test_data.h"
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

constexpr std::int64_t kWidth = 6;

// A minimal model that multiplies each kind of feature by a matrix.
struct Towers {
  std::vector<at::Tensor> weights;

  Towers() {
    at::manual_seed(11);
    for (int i = 0; i < 5; ++i) weights.push_back((at::randn({kWidth, kWidth}) / 2).requires_grad_(true));
  }
  Pairs forward(const Pairs& in) const {
    return {at::matmul(in.image_global, weights[0]),
            at::matmul(in.image_tokens, weights[1]),
            at::matmul(in.text_global, weights[2]),
            at::matmul(in.text_tokens, weights[3]),
            in.text_mask,
            in.image_group,
            in.caption_group,
            in.image_present,
            in.text_present,
            at::matmul(in.negatives, weights[4]),
            in.negatives_present};
  }
};

Pairs own_pairs(const Pairs& all, const ProcessGroup& group) {
  const auto part = [&](const at::Tensor& tensor) { return part_of(tensor.detach(), group); };
  return {part(all.image_global),  part(all.image_tokens),  part(all.text_global),
          part(all.text_tokens),   part(all.text_mask),     part(all.image_group),
          part(all.caption_group), part(all.image_present), part(all.text_present),
          part(all.negatives),     part(all.negatives_present)};
}

// Runs one step on `accumulation` global batches of 8 pairs each, whose gradients are accumulated. Returns the mean loss and the reduced
// gradients of all trainable tensors.
Tensors step(const ObjectiveCase& which, int accumulation, const ProcessGroup& group) {
  const Towers towers;
  const auto objective = make_objective(which.name, which.yaml, kWidth, at::kFloat);
  std::map<std::string, at::Tensor> parameters;
  for (std::size_t i = 0; i < towers.weights.size(); ++i) parameters["tower" + std::to_string(i)] = towers.weights[i];
  for (const auto& item : objective->named_parameters()) parameters[item.key()] = item.value();
  std::vector<at::Tensor> list;
  for (const auto& [name, tensor] : parameters) list.push_back(tensor);
  GradientReducer reducer(list, group, 25);

  StepContext context;
  context.group = group;
  at::Tensor mean = at::zeros({1});
  for (int micro = 0; micro < accumulation; ++micro) {
    Pairs all = random_pairs({4, 2, 3, 0, 1, 4, 2, 3}, 4, 5, kWidth, at::kFloat, 5 + static_cast<std::uint64_t>(micro));
    // Objectives without skip_absent ignore these masks. With two ranks, all pairs of the second rank are complete; with four,
    // no pair of the first rank is complete.
    all.image_present = at::arange(8) != 1;
    all.text_present = (at::arange(8) != 0) & (at::arange(8) != 3);
    const Pairs features = towers.forward(own_pairs(all, group));
    const at::Tensor loss = objective->forward(features.features(), context).total / accumulation;
    reducer.backward(loss, micro + 1 == accumulation ? BackwardPass::last : BackwardPass::some);
    mean += loss.detach();
  }
  group.all_reduce(mean);
  Tensors out{{"loss", mean / group.size()}};
  for (const auto& [name, tensor] : parameters)
    out["grad." + name] = tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor);
  return out;
}

void expect_equal(const Tensors& ours, const Tensors& alone) {
  double difference = 0, norm = 0;
  for (const auto& [name, tensor] : alone) {
    if (name == "loss") continue;
    norm += tensor.to(at::kDouble).square().sum().item<double>();
    difference += (ours.at(name) - tensor).to(at::kDouble).square().sum().item<double>();
  }
  EXPECT_GT(norm, 0);
  EXPECT_LT(std::sqrt(difference), 2e-6 * std::sqrt(norm)) << "share " << std::sqrt(difference / norm);
  EXPECT_NEAR(ours.at("loss").item<double>(), alone.at("loss").item<double>(),
              1e-6 * std::max(1.0, alone.at("loss").item<double>()));
}

std::vector<ObjectiveCase> cases_over_ranks() {
  std::vector<ObjectiveCase> cases = all_objectives();
  const std::vector<ObjectiveCase> more = {
      {"clip_chunk", "clip", "{chunk: 3}"},
      {"clip_chunk_1", "clip", "{chunk: 1}"},
      {"clip_whole", "clip", "{local_loss: false}"},
      {"clip_whole_chunk", "clip", "{local_loss: false, chunk: 3}"},
      {"siglip_chunk", "siglip", "{init_logit_bias: -1, init_logit_scale: 1, chunk: 3}"},
      {"clip_shared_chunk", "clip", "{mask_duplicates: true, chunk: 3}"},
      {"clip_shared_whole", "clip", "{mask_duplicates: true, local_loss: false}"},
      {"siglip_shared_chunk", "siglip", "{mask_duplicates: true, init_logit_bias: -1, init_logit_scale: 1, chunk: 1}"},
      {"clip_own_negatives_chunk", "clip", "{hard_negatives: own, chunk: 3}"},
      {"clip_own_negatives_whole", "clip", "{hard_negatives: own, local_loss: false}"},
      {"clip_all_negatives_chunk", "clip", "{hard_negatives: all, chunk: 1}"},
      {"clip_all_negatives_whole", "clip", "{hard_negatives: all, local_loss: false, chunk: 3}"},
      {"clip_all_negatives_absent", "clip",
       "{hard_negatives: all, skip_absent: true, label_smoothing: 0.2, mask_duplicates: true, chunk: 1}"},
      {"siglip_own_negatives_absent", "siglip",
       "{hard_negatives: own, skip_absent: true, init_logit_bias: -1, init_logit_scale: 1, chunk: 3}"},
      {"siglip_all_negatives_chunk", "siglip",
       "{hard_negatives: all, init_logit_bias: -1, init_logit_scale: 1, chunk: 3}"},
      {"sparc_chunk", "sparc", "{chunk: 3}"},
      {"sparc_batch_chunk", "sparc", "{token_reduction: batch, chunk: 1}"},
      {"filip_chunk", "filip", "{chunk: 3}"},
      {"pacl_chunk", "pacl", "{embedder_hidden: 6, chunk: 3}"},
      {"gloria_chunk", "gloria", "{chunk: 3}"},
      {"mgca_chunk", "mgca", "{num_prototypes: 6, attention_dim: 4, chunk: 2}"},
      {"clip_all", "clip", "{skip_absent: true, label_smoothing: 0.2, mask_duplicates: true}"},
      {"clip_all_whole", "clip", "{skip_absent: true, label_smoothing: 0.2, mask_duplicates: true, local_loss: false}"},
      {"clip_all_chunk", "clip", "{skip_absent: true, label_smoothing: 0.2, mask_duplicates: true, chunk: 1}"},
      {"siglip_absent_chunk", "siglip", "{skip_absent: true, init_logit_bias: -1, init_logit_scale: 1, chunk: 3}"},
      {"sparc_absent", "sparc", "{skip_absent: true}"},
      {"sparc_absent_batch", "sparc", "{skip_absent: true, token_reduction: batch, chunk: 1}"},
      {"filip_absent_chunk", "filip", "{skip_absent: true, chunk: 3}"},
      {"gloria_absent_chunk", "gloria", "{skip_absent: true, chunk: 3}"},
      {"stair_chunk", "stair", "{lambda_image: 0.3, lambda_text: 0.2, chunk: 3}"},
      {"stair_absent", "stair", "{skip_absent: true, lambda_image: 0.3, lambda_text: 0.2}"},
      {"mgca_absent", "mgca", "{skip_absent: true, num_prototypes: 6, attention_dim: 4}"},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

class LossOverRanks : public testing::TestWithParam<ObjectiveCase> {};
INSTANTIATE_TEST_SUITE_P(Objectives, LossOverRanks, testing::ValuesIn(cases_over_ranks()), label_of);

TEST_P(LossOverRanks, MatchesOneProcess) {
  for (const int accumulation : {1, 2}) {
    SCOPED_TRACE(concat("accumulation ", accumulation));
    expect_same_as_one_rank({1, 2, 4}, [&](const ProcessGroup& group) { return step(GetParam(), accumulation, group); }, expect_equal);
  }
}

// The matrix of 1,100 x 1,100 similarities is computed in several tiles along both rows and columns.
class ManyTiles : public testing::TestWithParam<ObjectiveCase> {};
INSTANTIATE_TEST_SUITE_P(Objectives, ManyTiles,
                         testing::ValuesIn(std::vector<ObjectiveCase>{
                             {"clip", "clip", "mask_duplicates: true"},
                             {"clip_all", "clip", "mask_duplicates: true, skip_absent: true, label_smoothing: 0.2"},
                             {"siglip", "siglip", "mask_duplicates: true"}}),
                         label_of);

TEST_P(ManyTiles, MatchTheComposedLoss) {
  const auto body = [](const ProcessGroup& group) -> Tensors {
    const bool tiled = !group.alone();  // the reference, one rank without a connection, computes the loss in one piece
    at::manual_seed(3);
    const at::Tensor image = at::randn({1100, 8}), text = image + at::randn({1100, 8});
    const at::Tensor a = part_of(image, group).clone().requires_grad_(true);
    const at::Tensor b = part_of(text, group).clone().requires_grad_(true);
    const auto objective =
        make_objective(GetParam().name, concat("{", GetParam().yaml, tiled ? ", chunk: 400}" : "}"), 8, at::kFloat);
    Features features;
    features.images["image"].global = a;
    features.texts["caption"].global = b;
    const at::Tensor places = part_of(at::arange(1100), group);
    features.images["image"].present = places % 5 != 2;
    features.duplicates.image_group = places % 600;
    features.duplicates.caption_group = places.bitwise_or(4);
    StepContext context;
    context.group = group;
    const at::Tensor loss = objective->forward(features, context).total;
    loss.backward();
    Tensors out{{"loss", loss.detach()}};
    for (const auto& item : objective->named_parameters()) out[item.key()] = item.value().grad().clone();
    average(out, group);
    // The features' gradients are those of the sum of all ranks' losses, which is `size` times the loss of the global batch.
    out["image"] = group.all_gather(a.grad()) / group.size();
    out["text"] = group.all_gather(b.grad()) / group.size();
    return out;
  };
  expect_same_as_one_rank({1, 2, 4}, body, expect_equal);
}

// With two ranks, all samples of the second rank lack regions, and one sample of each rank lacks object names.
class PyramidClipOverRanks : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Settings, PyramidClipOverRanks,
                         testing::Values("{}", "{chunk: 3}", "{local_loss: false}",
                                         "{mask_duplicates: true, chunk: 1, peer_pairs: [GS, LT, RA]}"));

TEST_P(PyramidClipOverRanks, MatchesOneProcess) {
  const auto body = [](const ProcessGroup& group) -> Tensors {
    at::manual_seed(3);
    const auto part = [&](const at::Tensor& all) { return part_of(all, group); };
    Features features;
    Tensors leaves;
    const auto add = [&](std::map<std::string, TowerFeatures>& views, const std::string& view) {
      leaves[view] = part(at::randn({8, kWidth})).clone().requires_grad_(true);
      views[view].global = leaves[view];
    };
    for (const char* view : {"global", "local", "roi"}) add(features.images, view);
    for (const char* view : {"summary", "caption", "objects"}) add(features.texts, view);
    const at::Tensor places = at::arange(8);
    features.images["roi"].present = part(places < 4);
    features.texts["objects"].present = part(places % 4 != 2);
    features.duplicates = {part(places % 7), part(places.bitwise_or(4))};
    StepContext context;
    context.group = group;
    const auto objective = make_objective("pyramidclip", GetParam(), kWidth, at::kFloat);
    const Losses losses = objective->forward(features, context);
    losses.total.backward();
    Tensors out{{"loss", losses.total.detach().clone()},
                {"logit_scale", objective->named_parameters()["logit_scale"].grad().clone()}};
    average(out, group);
    for (const auto& [view, leaf] : leaves) out[view] = group.all_gather(leaf.grad()) / group.size();
    return out;
  };
  expect_same_as_one_rank({1, 2, 4}, body, expect_equal);
}

// In STAIR's first stage, each rank builds the mask of text tokens from the ids of its own texts.
TEST(StairOverRanks, MaskedLossMatchesOneProcess) {
  const auto body = [](const ProcessGroup& group) -> Tensors {
    at::manual_seed(3);
    const auto part = [&](const at::Tensor& all) { return part_of(all, group); };
    const at::Tensor image = part(at::rand({8, 20})).clone().requires_grad_(true);
    const at::Tensor text = part(at::rand({8, 20})).clone().requires_grad_(true);
    Features features;
    features.images["image"].global = image;
    features.texts["caption"].global = text;
    features.texts["caption"].input = text_input(part(at::randint(20, {8, 5}, at::kLong)));
    StepContext context;
    context.group = group;
    context.step = 4;
    const auto objective = make_objective(
        "stair", "{text_token_mask: true, special_token_ids: [2], lambda_text: 0.5, lambda_growth_steps: 10}", 20,
        at::kFloat);
    const Losses losses = objective->forward(features, context);
    losses.total.backward();
    Tensors out{{"loss", losses.total.detach().clone()}};
    average(out, group);
    out["image"] = group.all_gather(image.grad()) / group.size();
    out["text"] = group.all_gather(text.grad()) / group.size();
    return out;
  };
  expect_same_as_one_rank({1, 2, 4}, body, expect_equal);
}

// Encodings over a vocabulary are wide, so a rank holds the encodings of one rank at a time, never those of all ranks.
TEST(StairOverRanks, NoRankHoldsAllEncodings) {
  constexpr std::int64_t kOwn = 6, kVocabulary = 5000;
  const auto results = run_ranks(4, [](const ProcessGroup& group) -> Tensors {
    at::manual_seed(static_cast<std::uint64_t>(group.rank()));
    Features features;
    features.images["image"].global = at::rand({kOwn, kVocabulary}).requires_grad_(true);
    features.texts["caption"].global = at::rand({kOwn, kVocabulary}).requires_grad_(true);
    StepContext context;
    context.group = group;
    const auto objective = make_objective("stair", "{}", kVocabulary, at::kFloat);
    const LargestAllocation largest;
    objective->forward(features, context).total.backward();
    return {{"bytes", at::scalar_tensor(largest.bytes(), at::kLong)}};
  });
  for (const Tensors& rank : results) EXPECT_LT(rank.at("bytes").item<std::int64_t>(), 3 * kOwn * kVocabulary * 4 / 2);
}

// Every rank returns the loss of the global batch. The backward pass sums the gradients of all ranks' losses. So a row's gradient is the
// number of ranks times the gradient of one rank's loss.
TEST(FlopsRegularizerOverRanks, CoversTheRowsOfAllRanks) {
  at::manual_seed(3);
  const at::Tensor all = at::rand({10, 7}).to(at::kBFloat16).to(at::kDouble);
  const at::Tensor mean = all.mean(0);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const auto& ends : std::vector<std::vector<std::int64_t>>{{0, 10}, {0, 3, 10}, {0, 1, 5, 7, 10}}) {
      const auto size = static_cast<int>(ends.size()) - 1;
      const auto results = run_ranks(size, [&](const ProcessGroup& group) -> Tensors {
        const auto rank = static_cast<std::size_t>(group.rank());
        const at::Tensor own = all.slice(0, ends[rank], ends[rank + 1]).to(dtype).requires_grad_(true);
        const at::Tensor loss = flops_regularizer(own, group);
        (3 * loss).backward();
        return {{"loss", loss.detach().reshape({1})}, {"gradient", own.grad()}};
      });
      for (const Tensors& rank : results) {
        EXPECT_NEAR(rank.at("loss").item<double>(), mean.square().sum().item<double>(),
                    dtype == at::kDouble ? 1e-12 : 1e-6);
        EXPECT_EQ(rank.at("gradient").scalar_type(), dtype);
        const at::Tensor expected = (size * 3 * 2 * mean / 10).expand_as(rank.at("gradient"));
        const double tolerance = dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 1e-6 : 1e-2;
        EXPECT_TRUE(at::allclose(rank.at("gradient").to(at::kDouble), expected, tolerance)) << dtype;
      }
    }
}

// golden/sparc.md describes which pairs each of the two ranks has.
TEST(GoldenTwoRanks, ShardsAgree) {
  const io::TensorFile file = io::load_safetensors(test_data("golden/sparc/clip_two_ranks.safetensors"));
  for (const char* yaml : {"{}", "{chunk: 2}"}) {
    const auto results = run_ranks(2, [&](const ProcessGroup& group) -> Tensors {
      const auto part = [&](const char* name) { return part_of(file.tensors.at(name), group).clone().requires_grad_(true); };
      const at::Tensor image = part("in.image_global"), text = part("in.text_global");
      const auto objective = make_objective("clip", yaml, image.size(1), at::kFloat);
      at::Tensor scale = objective->named_parameters()["logit_scale"];
      {
        const at::NoGradGuard no_grad;
        scale.copy_(file.tensors.at("param.logit_scale"));
      }
      Features features;
      features.images["image"].global = image;
      features.texts["caption"].global = text;
      StepContext context;
      context.group = group;
      const at::Tensor loss = objective->forward(features, context).total;
      loss.backward();
      return {{"loss", loss.detach().reshape({1})},
              {"scale", scale.grad().reshape({1})},
              {"image", image.grad()},
              {"text", text.grad()}};
    });
    const auto joined = [&](const char* name) { return at::cat({results[0].at(name), results[1].at(name)}); };
    const auto expect_close = [&](const at::Tensor& ours, const at::Tensor& theirs) {
      EXPECT_LE((ours - theirs).abs().max().item<double>(), 1e-5 * (1 + theirs.abs().max().item<double>())) << yaml;
    };
    expect_close(joined("loss"), file.tensors.at("shard.loss"));
    expect_close(joined("scale"), file.tensors.at("shard.grad.param.logit_scale"));
    expect_close(joined("image"), 2 * file.tensors.at("grad.in.image_global"));
    expect_close(joined("text"), 2 * file.tensors.at("grad.in.text_global"));
  }
}

}  // namespace
}  // namespace tessera
