#include <torch/csrc/autograd/autograd.h>

#include "tests/models/small_models.h"
#include "tests/support/gradcheck.h"
#include "tests/support/test_name.h"
#include <tessera/models/registry.h>

namespace tessera {
namespace {

/// A read-out and tokens [3, 5, 6] for it. Some tokens are padding, and the last row has no real token.
class ReadOutOverTokens : public testing::TestWithParam<std::string> {
 protected:
  ReadOutOverTokens() {
    at::manual_seed(4);
    ReadOutContext context;
    context.width = 6;
    context.modality = Modality::text;
    shared_.token_embedding = at::randn({7, 4}, at::kDouble);
    context.shared = &shared_;
    const config::Node node = settings(GetParam());
    readout_ = readouts().make(config::Value<config::ModuleSettings>::read(node, "readout", {}), "readout", context);
    readout_->to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : readout_->parameters()) parameter.add_(0.1 * at::randn_like(parameter));
  }
  ReadOutOutput read(const at::Tensor& tokens, const at::Tensor& mask) {
    return readout_->forward({.tokens = tokens, .mask = mask}, {.slots = true, .attention = true});
  }

  SharedParameters shared_;
  std::shared_ptr<ReadOut> readout_;
  const at::Tensor mask_ = length_mask({5, 3, 0}, 5);
  const at::Tensor tokens_ = at::randn({3, 5, 6}, at::kDouble).requires_grad_(true);
};
INSTANTIATE_TEST_SUITE_P(
    ReadOuts, ReadOutOverTokens,
    testing::Values<std::string>(
        "{name: sparo, slots: 3, slot_width: 2, key_width: 4}",
        "{name: sparo, slots: 4, slot_width: 3, key_width: 2, group_size: 2, layer_norm: slot}",
        "{name: sparo, slots: 2, slot_width: 3, key_width: 3, share_values: false, value_width: 2, "
        "cross_attention: multi_head, layer_norm: full, projection: full, normalize_slots: false}",
        "{name: sparo, slots: 8, slot_width: 2, key_width: 2, group_size: 8, bias: false}",
        "{name: linear_bottleneck, pool: gap, bottleneck_dim: 2, output_dim: 5}",
        "{name: linear_bottleneck, pool: max, bottleneck_dim: 2, output_dim: 5}",
        "{name: map, heads: 2, mlp_hidden: 7}", "{name: map, heads: 3, activation: gelu_tanh}",
        "{name: fdt, codes: 7, code_width: 4, temperature: 0.5}",
        "{name: fdt, codes: 7, code_width: 4, temperature: 0.5, masked_score: zero}",
        "{name: fdt, codes: 7, code_width: 4, temperature: 0.5, activation: softmax}", "{name: token_projection}"),
    test_name<std::string>);

TEST_P(ReadOutOverTokens, GradientsMatchFiniteDifferences) {
  std::vector<at::Tensor> leaves = readout_->parameters();
  leaves.push_back(tokens_);
  expect_gradients_match(
      leaves,
      [&] {
        const ReadOutOutput out = read(tokens_, mask_);
        at::Tensor loss =
            (out.embedding * at::arange(out.embedding.numel(), at::kDouble).view_as(out.embedding).cos()).sum();
        if (out.slots.defined()) loss = loss + out.slots.square().sum() + out.attention.square().sum();
        return loss;
      },
      1e-5);
}

TEST_P(ReadOutOverTokens, PaddingNeverReachesOutputsOrGradients) {
  const at::Tensor filled = tokens_.detach().masked_fill(~mask_.unsqueeze(-1), std::nan("")).requires_grad_(true);
  const ReadOutOutput plain = read(tokens_, mask_), ours = read(filled, mask_);
  EXPECT_TRUE(at::equal(ours.embedding, plain.embedding));
  EXPECT_TRUE(ours.embedding.isfinite().all().item<bool>());
  std::vector<at::Tensor> leaves = readout_->parameters();
  leaves.push_back(filled);
  for (const at::Tensor& gradient :
       torch::autograd::grad({ours.embedding.cos().sum()}, leaves, {}, std::nullopt, false, true))
    if (gradient.defined()) {
      EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << gradient.sizes();
    }
}

TEST_P(ReadOutOverTokens, OrderOfTokensDoesNotMatter) {
  const at::Tensor places = at::randperm(5);
  expect_close(read(tokens_.index_select(1, places), mask_.index_select(1, places)).embedding,
               read(tokens_, mask_).embedding, 1e-12);
}

ModelSettings sparo_clip(const std::string& image = "", const std::string& text = "") {
  ModelSettings s = small_clip();
  s.image.readout = {"sparo", settings("{slots: 3, slot_width: 4, key_width: 2" + image + "}")};
  s.text->readout = {"sparo", settings("{slots: 3, slot_width: 4, key_width: 2" + text + "}")};
  s.image.projection = s.text->projection = {"none"};
  return s;
}

TEST(SparoReadOut, ReturnsSlotsAndAttentionOnlyOnRequest) {
  DualEncoder model(sparo_clip());
  const at::Tensor pixels = random_pixels(2);
  const TowerInput text = text_input(at::randint(20, {2, 8}, at::kLong), length_mask({8, 5}, 8));
  for (const TowerFeatures& features : {model.encode_image(pixels), model.encode_text(text)}) {
    EXPECT_EQ(features.global.sizes(), (at::IntArrayRef{2, 12}));
    EXPECT_FALSE(features.slots.defined());
    EXPECT_FALSE(features.attention.defined());
  }
  const ViewNeeds needs{.slots = true, .attention = true};
  const TowerFeatures image = model.encode_image(image_input(pixels), needs), words = model.encode_text(text, needs);
  EXPECT_EQ(image.slots.sizes(), (at::IntArrayRef{2, 3, 4}));
  EXPECT_EQ(image.attention.sizes(), (at::IntArrayRef{2, 3, 4})) << "four patches without the class token";
  EXPECT_LT(image.attention.sum(2).max().item<double>(), 1) << "the class token has a share too";
  EXPECT_EQ(words.attention.sizes(), (at::IntArrayRef{2, 3, 8}));
  expect_close(words.attention.sum(2), at::ones({2, 3}));
  EXPECT_EQ(words.attention[1].slice(1, 5).abs().sum().item<double>(), 0);
}

TEST(SparoReadOut, DotProductOfEmbeddingsIsTheMeanCosineOfSlots) {
  DualEncoder model(sparo_clip());
  const ViewNeeds needs{.slots = true};
  const TowerFeatures image = model.encode_image(image_input(random_pixels(2)), needs),
                      text = model.encode_text(text_input(at::randint(20, {2, 8}, at::kLong)), needs);
  expect_close(image.global.norm(2, 1), at::ones({2}));
  expect_close((image.global * text.global).sum(1), at::cosine_similarity(image.slots, text.slots, 2).mean(1));
}

TEST(SparoReadOut, ParametersHaveTheNamesOfTheReferenceCode) {
  const auto state = DualEncoder(sparo_clip()).state_dict();
  for (const std::string prefix : {"visual.sparo.", "text_sparo."})
    for (const char* name : {"q_emb", "k.weight", "k.bias", "proj.weight", "proj.bias"})
      EXPECT_TRUE(state.contains(prefix + name)) << prefix + name;
  EXPECT_FALSE(state.contains("visual.proj"));
  EXPECT_FALSE(state.contains("text_projection"));
}

TEST(SparoReadOut, RejectsTowersWithDifferentSlotsOfTheSameWidth) {
  ModelSettings s = sparo_clip();
  s.text->readout.settings = settings("{slots: 6, slot_width: 2}");
  EXPECT_EQ(error_of([&] { DualEncoder model(s); }),
            "model: the image tower's read-out gives 3 slots of 4, the text tower's 6 of 2: make slots and slot_width "
            "of both "
            "sparo read-outs equal");
}

TEST(SparoReadOut, RejectsImpossibleSettings) {
  EXPECT_EQ(error_of([] { DualEncoder model(sparo_clip(", group_size: 2")); }),
            "test.yaml:1: model.image.readout.group_size: 2 does not divide slots 3");
  EXPECT_EQ(error_of([] { DualEncoder model(sparo_clip("", ", value_width: 3")); }),
            "test.yaml:1: model.text.readout.value_width: 3 needs share_values: false; shared values are the keys, 2 wide");
}

TEST(SparoReadOut, ReplacesTheAttentionPoolingOfAResnet) {
  ModelSettings s = sparo_clip();
  s.image.encoder = {"modified_resnet", settings("{layers: [1, 1, 1, 1], width: 4}")};
  s.preprocessing.image_size = 64;
  DualEncoder model(s);
  const TowerFeatures image = model.encode_image(image_input(random_pixels(2, 64)), {.attention = true});
  EXPECT_EQ(image.global.sizes(), (at::IntArrayRef{2, 12}));
  EXPECT_EQ(image.attention.sizes(), (at::IntArrayRef{2, 3, 4}));
  expect_close(image.attention.sum(2), at::ones({2, 3}));
}

TEST(ReadOuts, RefuseTokensThatTheyCannotPoolInOneLine) {
  ReadOutContext context;
  context.width = 6;
  context.modality = Modality::text;
  const at::Tensor tokens = at::randn({2, 5, 6});
  const auto of_ends = readouts().make({"linear_bottleneck", settings("{pool: eos, bottleneck_dim: 2, output_dim: 4}")}, "", context);
  EXPECT_EQ(error_of([&] { of_ends->forward({.tokens = tokens}, {}); }),
            "model: readout eos: the encoder returns no token ids to find the end token in: choose another pool, such as gap");
  const auto of_groups = readouts().make({"groups", settings("{output_dim: 4}")}, "", context);
  EXPECT_EQ(error_of([&] { of_groups->forward({.tokens = tokens, .mask = length_mask({5, 3}, 5)}, {}); }),
            "model: readout groups: the encoder's tokens have padding: choose gap, or an encoder that returns groups");
}

TEST(LinearBottleneckReadOut, ReadsTheTokenOfItsPool) {
  ReadOutContext context;
  context.width = 6;
  context.modality = Modality::text;
  const Encoded encoded{.tokens = at::randn({2, 5, 6}), .mask = length_mask({5, 3}, 5)};
  const auto readout = readouts().make({"linear_bottleneck", settings("{pool: eos, bottleneck_dim: 2, output_dim: 4}")}, "", context);
  const auto parameters = readout->named_parameters();
  const at::Tensor ends = at::stack({encoded.tokens[0][4], encoded.tokens[1][2]});
  const at::Tensor middle = at::matmul(ends, parameters["proj"]);
  expect_close(readout->forward(encoded, {}).embedding,
               at::linear(middle, parameters["bottleproj.weight"], parameters["bottleproj.bias"]));
}

ModelSettings fdt_clip(const char* image = "{codes: 9, code_width: 6}") {
  ModelSettings s = small_clip();
  s.image.readout = {"fdt", settings(image)};
  s.text->readout = {"fdt", settings("{codes: 9, code_width: 6}")};
  s.image.projection = s.text->projection = {"none"};
  s.image.encoder.settings.set("final_norm", config::Node::scalar("none"));
  s.text->encoder.settings.set("final_norm", config::Node::scalar("none"));
  return s;
}

TEST(FdtReadOut, TowersShareOneCodebook) {
  DualEncoder model(fdt_clip());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.state_dict())
    if (name.find("space_dict") != std::string::npos) names.push_back(name);
  ASSERT_EQ(names, std::vector<std::string>{"readout.space_dict"});
  const at::Tensor codes = model.state_dict().at(names[0]);
  std::int64_t times = 0;
  for (const at::Tensor& parameter : model.parameters()) times += parameter.is_same(codes) ? 1 : 0;
  EXPECT_EQ(times, 1) << "it is optimized once";
  model.encode_image(random_pixels(2)).global.square().sum().backward();
  ASSERT_TRUE(codes.grad().defined()) << "the image tower gives a gradient";
  EXPECT_GT(codes.grad().abs().sum().item<double>(), 0);
  codes.mutable_grad().zero_();
  model.encode_text(text_input(at::randint(20, {1, 8}, at::kLong))).global.square().sum().backward();
  EXPECT_GT(codes.grad().abs().sum().item<double>(), 0) << "the text tower uses it too";
}

TEST(FdtReadOut, CodebookWithoutATextTowerBelongsToTheImageTower) {
  ModelSettings s = fdt_clip();
  s.text.reset();
  EXPECT_TRUE(DualEncoder(s).state_dict().contains("visual.readout.space_dict"));
}

TEST(FdtReadOut, RejectsCodebooksOfTwoSizes) {
  EXPECT_EQ(
      error_of([] { DualEncoder model(fdt_clip("{codes: 8, code_width: 6}")); }),
      "model.image.readout: two modules share the codebook of fdt, but one makes it [9, 6] and the other wants [8, 6]: "
      "give both towers the same codes and code_width");
}

}  // namespace
}  // namespace tessera
