#include <limits>

#include "src/foreign/foreign_model.h"
#include "src/models/leff.h"
#include "src/models/per_sample_rng.h"
#include "src/models/transformer.h"
#include "tests/models/small_models.h"
#include "tests/support/gradcheck.h"
#include "tests/support/test_data.h"
#include <tessera/io/safetensors.h>
#include <tessera/models/adaptation.h>
#include <tessera/optim/optimizer.h>

namespace tessera {
namespace {

const std::vector<std::string> kAllLayers = {"query", "key", "value", "out", "mlp_in", "mlp_out"};

using State = std::map<std::string, at::Tensor>;

State copies(const State& state) {
  State out;
  for (const auto& [name, tensor] : state) out[name] = tensor.detach().clone();
  return out;
}

/// Adds an adapter to every linear map of the module that supports one, and makes the adapters' B matrices nonzero.
void adapt_all(torch::nn::Module& module, const LoraSettings& settings) {
  for (const auto& each : module.modules()) {
    auto* adaptable = dynamic_cast<Adaptable*>(each.get());
    if (adaptable == nullptr) continue;
    for (const LinearMap& map : adaptable->linear_maps()) adaptable->add_adapter(*each, map, settings);
  }
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters())
    if (is_adapter(item.key())) item.value().normal_(0, 0.3);
}

TransformerSettings one_block() {
  TransformerSettings s;
  s.width = 6, s.layers = 1, s.heads = 2, s.mlp_ratio = 1.5, s.mlp = "gated", s.activation = "silu";
  return s;
}

/// Returns what an adapter adds to the linear map's output for the input x, computed with plain operators.
at::Tensor update(const torch::nn::Module& module, const std::string& name, const at::Tensor& x, double scale) {
  const auto parameters = module.named_parameters();
  return at::matmul(at::matmul(x, parameters["lora_" + name + "_a"].t()), parameters["lora_" + name + "_b"].t()) * scale;
}

// Here the MLP is gated. The LoraOfPeft tests cover attention and plain MLPs.
TEST(Lora, GatedMlpMatchesPlainTensors) {
  at::manual_seed(1);
  const auto mlp = std::make_shared<Mlp>(MlpShape{.width = 6, .hidden = 9, .activation = "silu", .gated = true});
  adapt_all(*mlp, {.rank = 2, .alpha = 5});
  const at::Tensor x = at::randn({2, 5, 6});
  const auto of = mlp->named_parameters();
  const auto through = [&](const std::string& layer, const char* name, const at::Tensor& y) {
    return at::linear(y, of[layer + ".weight"], of[layer + ".bias"]) + update(*mlp, name, y, 2.5);
  };
  const at::Tensor hidden = at::silu(through("c_gate", "gate", x)) * through("c_fc", "in", x);
  expect_close(mlp->forward(x, {}), through("c_proj", "out", hidden));
}

/// Tests with and without gradient checkpointing, and with and without dropout. The row keys determine dropout's random numbers, so each
/// evaluation drops the same elements.
TEST(Lora, GradientsMatchFiniteDifferences) {
  for (const double dropout : {0.0, 0.5})
    for (const bool again : {false, true}) {
      at::manual_seed(2);
      TransformerSettings s = one_block();
      s.grad_checkpointing = again;
      const auto transformer = std::make_shared<Transformer>(s, BlockInitialization::image);
      adapt_all(*transformer, {.rank = 2, .dropout = dropout});
      transformer->to(at::kDouble);
      std::vector<at::Tensor> leaves{at::randn({2, 3, 6}, at::kDouble).requires_grad_(true)};
      for (const auto& item : transformer->named_parameters())
        if (is_adapter(item.key())) leaves.push_back(item.value());
      ASSERT_EQ(leaves.size(), 1U + 2 * 7);
      const at::Tensor keys = row_keys(3, 0, 1, 2);
      expect_gradients_match(leaves, [&] {
        const RowRngScope scope(keys);
        return transformer->forward(leaves[0]).sin().sum();
      });
    }
}

TEST(Lora, NamesExtendTheNamesOfTheWeights) {
  DualEncoder model(small_clip());
  adapt(model, {.image = {{LoraSettings{.layers = kAllLayers, .blocks = {1}}}}, .text = {{LoraSettings{}}}}, 5);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model.state_dict())
    if (is_adapter(name)) names.push_back(name);
  std::vector<std::string> want;
  for (const char* block : {"0", "1"})
    for (const char* layer : {"query", "value"})
      for (const char* matrix : {"a", "b"}) want.push_back(concat("transformer.resblocks.", block, ".attn.lora_", layer, "_", matrix));
  for (const char* layer : {"attn.lora_key", "attn.lora_out", "attn.lora_query", "attn.lora_value", "mlp.lora_in", "mlp.lora_out"})
    for (const char* matrix : {"a", "b"}) want.push_back(concat("visual.transformer.resblocks.1.", layer, "_", matrix));
  EXPECT_EQ(names, want);
}

/// A fixture with a small OpenCLIP-like model whose towers have adapters, and with images and texts for it.
class LoraModel : public testing::Test {
 protected:
  LoraModel() {
    at::manual_seed(3);
    model_ = std::make_shared<DualEncoder>(small_clip());
    pixels_ = random_pixels(3);
    texts_.ids = at::randint(20, {3, 8});
    texts_.mask = length_mask({8, 3, 5}, 8);
  }
  void adapt_both(LoraSettings settings = {.rank = 3, .layers = kAllLayers}) {
    adapt(*model_, {.image = {{settings}}, .text = {{settings}}}, 7);
  }
  void move() {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : model_->state_dict())
      if (is_adapter(name)) tensor.normal_(0, 0.1);
  }
  std::pair<at::Tensor, at::Tensor> features(DualEncoder& model) {
    const at::NoGradGuard no_grad;
    return {model.encode_image(pixels_).global, model.encode_text(texts_).global};
  }

  std::shared_ptr<DualEncoder> model_;
  at::Tensor pixels_;
  TowerInput texts_;
};

TEST_F(LoraModel, FreshAdaptersChangeNeitherWeightsNorOutputs) {
  const auto [image, text] = features(*model_);
  const State before = copies(model_->state_dict());
  adapt_both();
  for (const auto& [name, tensor] : before) EXPECT_TRUE(at::equal(model_->state_dict().at(name), tensor)) << name;
  const auto [image_now, text_now] = features(*model_);
  EXPECT_TRUE(at::equal(image, image_now));
  EXPECT_TRUE(at::equal(text, text_now));
}

TEST_F(LoraModel, MergedWeightsMatchAndFitAPlainModel) {
  adapt_both();
  move();
  model_->eval();
  const State before = copies(model_->state_dict());
  const auto [image, text] = features(*model_);
  DualEncoder plain(small_clip());
  plain.load_state(merged(model_->state_dict(), weight_updates(*model_)), "merged");
  plain.eval();
  const auto [plain_image, plain_text] = features(plain);
  expect_close(plain_image, image);
  expect_close(plain_text, text);
  {
    const MergedAdapters scope(*model_);
    const auto [merged_image, merged_text] = features(*model_);
    EXPECT_TRUE(at::equal(merged_image, plain_image)) << "bit for bit";
    EXPECT_TRUE(at::equal(merged_text, plain_text));
    EXPECT_FALSE(at::equal(model_->state_dict().at("visual.transformer.resblocks.0.attn.in_proj_weight"),
                           before.at("visual.transformer.resblocks.0.attn.in_proj_weight")));
  }
  for (const auto& [name, tensor] : before) EXPECT_TRUE(at::equal(model_->state_dict().at(name), tensor)) << name;
  EXPECT_TRUE(at::equal(features(*model_).first, image));
}

TEST_F(LoraModel, UnmergedTensorsAreThoseThatMergingChanges) {
  adapt_both({.rank = 2, .layers = {"out"}, .blocks = {1}});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : unmerged(model_->state_dict(), weight_updates(*model_))) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "transformer.resblocks.1.attn.lora_out_a", "transformer.resblocks.1.attn.lora_out_b",
                       "transformer.resblocks.1.attn.out_proj.weight", "visual.transformer.resblocks.1.attn.lora_out_a",
                       "visual.transformer.resblocks.1.attn.lora_out_b", "visual.transformer.resblocks.1.attn.out_proj.weight"}));
}

TEST_F(LoraModel, DropoutDependsOnlyOnTheRowAndIsOffInEvaluation) {
  adapt_both({.rank = 3, .dropout = 0.5, .layers = kAllLayers});
  move();
  const at::Tensor keys = row_keys(11, 0, 1, 3);
  const auto drawn = [&](const at::Tensor& of_rows) {
    const RowRngScope scope(of_rows);
    return features(*model_);
  };
  const auto [image, text] = drawn(keys);
  EXPECT_TRUE(at::equal(drawn(keys).first, image)) << "equal keys give equal numbers";
  EXPECT_FALSE(at::allclose(drawn(row_keys(12, 0, 1, 3)).first, image, 1e-3, 1e-3));
  const at::Tensor pixels = pixels_;
  const TowerInput texts = texts_;
  for (std::int64_t row = 0; row < 3; ++row) {
    pixels_ = pixels.slice(0, row, row + 1);
    texts_.ids = texts.ids.slice(0, row, row + 1).slice(1, 0, row == 0 ? 8 : 5);
    texts_.mask = texts.mask.slice(0, row, row + 1).slice(1, 0, row == 0 ? 8 : 5);
    const auto [image_alone, text_alone] = drawn(keys.slice(0, row, row + 1));
    expect_close(image_alone[0], image[row], 1e-5);
    expect_close(text_alone[0], text[row], 1e-5);
  }
  pixels_ = pixels;
  texts_ = texts;
  model_->eval();
  EXPECT_TRUE(at::equal(drawn(keys).first, drawn(row_keys(12, 0, 1, 3)).first));
}

TEST_F(LoraModel, DropoutIsTheSameWithAndWithoutPadding) {
  ModelSettings padded = small_clip(), packed = small_clip();
  for (const char* attention : {"causal", "bidirectional"}) {
    padded.text->encoder.settings.set("attention", config::Node::scalar(attention));
    padded.text->encoder.settings.set("skip_padding", config::Node::scalar("false"));
    packed.text->encoder.settings.set("attention", config::Node::scalar(attention));
    const auto text_of = [&](const ModelSettings& settings, bool again) {
      ModelSettings s = settings;
      s.text->encoder.settings.set("grad_checkpointing", config::Node::scalar(again ? "true" : "false"));
      at::manual_seed(4);
      model_ = std::make_shared<DualEncoder>(s);
      adapt_both({.rank = 2, .dropout = 0.4});
      at::manual_seed(5);
      move();
      const RowRngScope scope(row_keys(13, 0, 1, 3));
      const at::Tensor out = model_->encode_text(texts_).global;
      out.square().sum().backward();
      return std::pair{out.detach(), model_->state_dict().at("transformer.resblocks.0.attn.lora_value_a").grad()};
    };
    const auto [text, gradient] = text_of(padded, false);
    for (const bool again : {false, true}) {
      const auto [other, other_gradient] = text_of(packed, again);
      expect_close(other, text, 1e-5);
      expect_close(other_gradient, gradient, 1e-5);
    }
  }
}

TEST(Lora, DropoutKeepsTheMeanAndDropsItsShare) {
  at::manual_seed(6);
  MultiHeadAttention attention({.width = 64, .heads = 1});
  const LoraSettings settings{.rank = 64, .alpha = 64, .dropout = 0.25};
  attention.add_adapter(attention, attention.linear_maps()[3], settings);
  const at::NoGradGuard no_grad;
  attention.named_parameters()["lora_out_a"].copy_(at::eye(64));
  attention.named_parameters()["lora_out_b"].copy_(at::eye(64));
  for (const char* name : {"out_proj.weight", "out_proj.bias"}) attention.named_parameters()[name].zero_();
  const at::Tensor ones = at::ones({1, 500, 64}), dropped = attention.project(ones, ones);
  EXPECT_NEAR(dropped.eq(0).to(at::kFloat).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(dropped.mean().item<double>(), 1, 0.015);
  EXPECT_TRUE(dropped.eq(0).logical_or(dropped.sub(4.0 / 3).abs().lt(1e-5)).all().item<bool>());
}

TEST_F(LoraModel, LeffAndTextGroupBlocksTakeAdapters) {
  ModelSettings s = small_clip();
  s.image.encoder = {"vit", settings("{patch_size: 4, width: 12, layers: 2, heads: 3, leff: {layers: 1}}")};
  s.text->encoder = {"text_group_encoder", settings("{context_length: 8, vocab_size: 20, width: 8, heads: 2, token_layers: 1, "
                                                    "group_layers: 1, num_groups: 3}")};
  s.text->readout = {"gap"};
  model_ = std::make_shared<DualEncoder>(s);
  adapt_both({.rank = 2, .dropout = 0.3, .layers = kAllLayers});
  move();
  const State state = model_->state_dict();
  for (const char* name : {"visual.transformer.resblocks.0.mlp.lora_in_a", "token_blocks.0.attn.lora_query_a", "group_blocks.0.mlp.lora_out_b"})
    EXPECT_TRUE(state.contains(name)) << name;
  const at::Tensor keys = row_keys(14, 0, 1, 3);
  const RowRngScope scope(keys);
  const auto [image, text] = features(*model_);
  EXPECT_TRUE(at::isfinite(image).all().item<bool>());
  model_->eval();
  const auto [calm_image, calm_text] = features(*model_);
  EXPECT_FALSE(at::allclose(image, calm_image, 1e-3, 1e-3));
  const MergedAdapters merged_scope(*model_);
  const auto [merged_image, merged_text] = features(*model_);
  expect_close(merged_image, calm_image, 1e-5);
  expect_close(merged_text, calm_text, 1e-5);
}

TEST_F(LoraModel, AnotherLastBlockUsesTheAdapters) {
  model_ = std::make_shared<DualEncoder>(small_clip());
  adapt_both();
  move();
  model_->eval();
  ViewNeeds needs;
  needs.dense = true;
  needs.last_block = LastBlock::sclip;
  const at::NoGradGuard no_grad;
  const at::Tensor dense = model_->encode_image(pixels_, needs).dense;
  const MergedAdapters scope(*model_);
  expect_close(model_->encode_image(pixels_, needs).dense, dense, 1e-5);
}

TEST_F(LoraModel, ReportsMistakes) {
  const auto with = [&](const LoraSettings& s) { return error_of([&] { adapt_both(s); }); };
  EXPECT_EQ(with({.rank = 13}),
            "adapt.image.lora.rank: is 13, but query maps 12 numbers to 12: an update cannot have a greater rank than these");
  EXPECT_EQ(with({.blocks = {2}}), "adapt.image.lora.blocks: there is no block 2: the encoder has 2, numbered from 0");
  ModelSettings s = small_clip();
  s.image = {{"modified_resnet", settings("{width: 8, layers: [1, 1, 1, 1]}")},
             {"attention_pool_2d", settings("{heads: 4, output_dim: 6}")}, {"none"}};
  s.preprocessing.image_size = 32;
  model_ = std::make_shared<DualEncoder>(s);
  EXPECT_EQ(with({}), "adapt.image.lora: modified_resnet has no transformer blocks to adapt: LoRA is for vit, text_transformer and "
                      "text_group_encoder");
  s = small_clip();
  s.text.reset();
  model_ = std::make_shared<DualEncoder>(s);
  EXPECT_EQ(with({}), "adapt.text: this model has no text tower (model.text is null)");
  const auto read = [](const std::string& yaml) { return error_of([&] { config::read<AdaptSettings>(settings(yaml), "adapt"); }); };
  EXPECT_NE(read("{image: {lora: {rank: 0}}}").find("adapt.image.lora.rank: expected at least 1"), std::string::npos);
  EXPECT_NE(read("{image: {lora: {layers: [querry]}}}").find("did you mean query"), std::string::npos);
  EXPECT_NE(read("{image: {lora: {layers: []}}}").find("adapt.image.lora.layers: names no layer"), std::string::npos);
  EXPECT_NE(read("{image: {}}").find("adapt.image.lora: missing"), std::string::npos);
}

/// Trains adapters of the model in tests/data/foreign/clip. Compares the losses, the adapters and the merged model's embeddings with those
/// of PEFT in PyTorch (tests/data/foreign/make_peft.py).
TEST(LoraOfPeft, FiveStepsOfAdamWAndTheMergedModelMatch) {
  const std::string folder = test_data("foreign/clip");
  const auto model = build_model(load_foreign_model(folder), folder);
  const NamedTensors want = io::load_safetensors(test_data("foreign/peft.safetensors")).tensors;
  adapt(*model, {.image = {{LoraSettings{.rank = 4, .alpha = 6, .layers = kAllLayers}}},
                 .text = {{LoraSettings{.rank = 4, .alpha = 6}}}}, 0);
  std::vector<NamedParameter> adapters;
  for (const auto& [name, tensor] : model->state_dict()) {
    if (!is_adapter(name)) continue;
    const at::NoGradGuard no_grad;
    ASSERT_TRUE(want.contains("before." + name)) << name;
    tensor.copy_(want.at("before." + name));
    adapters.push_back({.name = name, .tensor = tensor});
  }
  ASSERT_EQ(std::count_if(want.begin(), want.end(), [](const auto& item) { return item.first.starts_with("before."); }),
            std::ssize(adapters));
  const auto optimizer = optimizers().make(
      {"adamw", settings("{lr: 1.0e-2, betas: [0.9, 0.999], eps: 1.0e-8, weight_decay: 0.1}")}, "optimizer", adapters);
  const TowerInput texts = text_input(want.at("ids"), at::ones_like(want.at("ids"), at::kBool));
  for (std::int64_t step = 0; step < 5; ++step) {
    const at::Tensor loss = (model->encode_image(want.at("pixels")).global - want.at("image_target")).square().mean() +
                            (model->encode_text(texts).global - want.at("text_target")).square().mean();
    EXPECT_NEAR(loss.item<double>(), want.at("losses")[step].item<double>(), 1e-5) << step;
    optimizer->zero_grad();
    loss.backward();
    optimizer->step(1e-2);
  }
  for (const NamedParameter& each : adapters) expect_close(each.tensor.detach(), want.at("after." + each.name), 1e-4);
  const at::NoGradGuard no_grad;
  const MergedAdapters scope(*model);
  expect_close(model->encode_image(want.at("pixels")).global, want.at("image"), 1e-4);
  expect_close(model->encode_text(texts).global, want.at("text"), 1e-4);
}

}  // namespace
}  // namespace tessera
