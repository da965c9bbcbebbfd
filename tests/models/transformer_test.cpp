#include "src/models/groupvit.h"
#include "src/models/leff.h"
#include "src/models/per_sample_rng.h"
#include "src/models/transformer.h"
#include "src/models/vit.h"
#include "tests/models/small_models.h"

namespace tessera {
namespace {

std::vector<std::string> parameter_names(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) names.push_back(item.key());
  return names;
}

TEST(TransformerSettings, RejectAnMlpWithoutHiddenUnits) {
  VitSettings s;
  EXPECT_FALSE(validate(s).has_value());
  s.mlp_ratio = 1e-12;
  EXPECT_EQ(validate(s).value().text, "int(width * mlp_ratio) must be at least 1, but width is 768");
  GroupVitSettings groups;
  EXPECT_FALSE(validate(groups).has_value());
  groups.mlp_ratio = 1e-12;
  EXPECT_EQ(validate(groups).value().key, "mlp_ratio");
}

// ---- attention

TEST(MultiHeadAttention, NamesParametersLikeTorchOrOneLinearPerProjection) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(parameter_names(MultiHeadAttention({.width = 4, .heads = 2})),
            (Names{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  EXPECT_EQ(
      parameter_names(MultiHeadAttention({.width = 4, .heads = 2, .key_width = 6})),
      (Names{"q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}));
  EXPECT_EQ(parameter_names(MultiHeadAttention({.width = 4, .heads = 2, .linears = true})),
            (Names{"q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias",
                   "out_proj.weight", "out_proj.bias"}));
}

TEST(MultiHeadAttention, ComputesTheSameWithEitherNames) {
  at::manual_seed(1);
  MultiHeadAttention fused({.width = 6, .heads = 3}), linears({.width = 6, .heads = 3, .linears = true});
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : fused.parameters()) parameter.normal_();
    const std::vector<at::Tensor> from = fused.projections(), to = linears.projections();
    for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  }
  const at::Tensor x = at::randn({2, 5, 6}), query = at::randn({1, 3, 6});
  const AttentionMask mask = attention_mask(length_mask({5, 2}, 5), 5);
  expect_close(linears.forward(x, mask), fused.forward(x, mask), 1e-5);
  expect_close(fused.forward(x, x, mask), fused.forward(x, mask), 1e-5);
  const at::Tensor crossed = fused.forward(query, x, mask);
  EXPECT_EQ(crossed.sizes(), (std::vector<std::int64_t>{2, 3, 6}));
  expect_close(linears.forward(query, x, mask), crossed, 1e-5);
  expect_close(crossed.slice(0, 1), fused.forward(query, x.slice(0, 1).slice(1, 0, 2)), 1e-5);
}

TEST(MultiHeadAttention, SupportsOtherKeyInnerAndOutputWidths) {
  const MultiHeadAttentionSettings s{.width = 6, .heads = 2, .key_width = 3, .inner_width = 4, .output_width = 5};
  MultiHeadAttention attention(s);
  EXPECT_EQ(attention.forward(at::randn({2, 7, 6}), at::randn({2, 3, 3})).sizes(),
            (std::vector<std::int64_t>{2, 7, 5}));
  EXPECT_THROW(MultiHeadAttention({.width = 6, .heads = 4}), c10::Error);
}

// ---- blocks

/// A feed-forward part that returns the same value for every token: the number of rows of the patch grid plus 100 times the number of
/// prefix tokens.
class GridRows : public FeedForward {
 public:
  GridRows() { register_parameter("bn_fc", at::ones({1})); }
  at::Tensor forward(const at::Tensor& x, const SequenceInfo& sequence) override {
    return at::full_like(x, static_cast<double>(sequence.grid.height + 100 * sequence.prefix));
  }
};

TransformerSettings small_transformer(std::int64_t layers) {
  TransformerSettings s;
  s.width = 4, s.layers = layers, s.heads = 2;
  return s;
}

/// Makes all attention layers of the module return `update` for every token, regardless of the input.
void fix_attention(torch::nn::Module& module, double update) {
  const at::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters()) {
    if (item.key().ends_with("out_proj.weight")) item.value().zero_();
    if (item.key().ends_with("out_proj.bias")) item.value().fill_(update);
  }
}

TEST(TransformerBlock, PassesTheGridToAnotherFeedForward) {
  Transformer transformer(small_transformer(2), BlockInitialization::image,
                          [](std::int64_t block) { return block == 0 ? std::make_shared<GridRows>() : nullptr; });
  fix_attention(transformer, 0);
  const auto parameters = transformer.named_parameters();
  EXPECT_TRUE(parameters.contains("resblocks.0.mlp.bn_fc"));
  EXPECT_FALSE(parameters.contains("resblocks.0.mlp.c_fc.weight"));
  EXPECT_TRUE(parameters.contains("resblocks.1.mlp.c_fc.weight"));
  const at::NoGradGuard no_grad;
  parameters["resblocks.1.mlp.c_proj.weight"].zero_();
  parameters["resblocks.1.mlp.c_proj.bias"].zero_();
  const at::Tensor x = at::randn({2, 7, 4});
  expect_close(transformer.forward(x, {{}, {3, 2}, true}), x + 103);
  expect_close(transformer.forward(x), x);
}

// ---- stochastic depth

/// Tests with blocks in which attention adds 10 and the feed-forward part adds 1.
class DropPath : public testing::Test {
 protected:
  class One : public FeedForward {
   public:
    at::Tensor forward(const at::Tensor& x, const SequenceInfo&) override { return at::ones_like(x); }
  };
  static std::shared_ptr<Transformer> blocks(double drop_path, std::int64_t layers = 2) {
    TransformerSettings s = small_transformer(layers);
    s.drop_path = drop_path;
    const auto transformer = std::make_shared<Transformer>(s, BlockInitialization::image,
                                                           [](std::int64_t) { return std::make_shared<One>(); });
    fix_attention(*transformer, 10);
    return transformer;
  }
  /// Returns, for each row, the total that the blocks add to one of its elements, [B].
  static at::Tensor updates(Transformer& blocks, const at::Tensor& keys) {
    const RowRngScope rows(keys);
    return blocks.forward(at::zeros({keys.size(0), 3, 4})).select(2, 0).select(1, 0);
  }
};

TEST_F(DropPath, SkipsTheStatedShareAndKeepsTheMean) {
  const auto transformer = blocks(0.2);
  const at::Tensor sums = updates(*transformer, row_keys(1, 0, 1, 20000));
  // In every row, the first block adds 10 (attention) + 1 (feed-forward part). The second block skips each of these two parts independently
  // in 20% of the rows. If it does not skip a part, it scales the part by 1 / 0.8.
  double total = 0;
  for (const auto& [sum, share] : std::map<double, double>{{11, 0.04}, {12.25, 0.16}, {23.5, 0.16}, {24.75, 0.64}}) {
    const double found = (sums - sum).abs().lt(1e-4).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(found, share, 0.015) << sum;
    total += found;
  }
  EXPECT_NEAR(total, 1, 1e-9);
}

TEST_F(DropPath, GrowsLinearlyOverTheBlocks) {
  const auto transformer = blocks(0.6, 4);
  const at::Tensor x = at::zeros({20000, 1, 4});
  for (const auto& [first, mean_kept] :
       std::map<std::int64_t, double>{{3, 0.4}, {2, 0.4 * 0.6}, {1, 0.4 * 0.6 * 0.8}}) {
    const RowRngScope rows(row_keys(2, 0, 1, 20000));
    const at::Tensor sums = transformer->forward(x, {}, first).select(2, 0).select(1, 0);
    double all = 0;  // the total that attention adds to a row if no block skips its attention
    for (std::int64_t i = first; i < 4; ++i) all += 10 / (1 - 0.2 * static_cast<double>(i));
    EXPECT_NEAR(sums.ge(all - 1e-3).to(at::kDouble).mean().item<double>(), mean_kept, 0.015) << first;
  }
}

TEST_F(DropPath, IsOffInEvaluation) {
  const auto transformer = blocks(0.9);
  transformer->eval();
  EXPECT_TRUE(at::equal(updates(*transformer, row_keys(1, 0, 1, 50)), at::full({50}, 22.F)));
}

TEST_F(DropPath, DoesNotDependOnRankOrChunk) {
  const auto transformer = blocks(0.5, 5);
  const at::Tensor keys = row_keys(3, 0, 1, 64), whole = updates(*transformer, keys);
  EXPECT_TRUE(at::equal(updates(*transformer, keys), whole)) << "equal in the second pass of GradCache";
  EXPECT_TRUE(at::equal(updates(*transformer, keys.slice(0, 10, 20)), whole.slice(0, 10, 20)));
  EXPECT_TRUE(at::equal(updates(*transformer, row_keys(3, 1, 2, 32)), whole.slice(0, 1, 64, 2)));
  EXPECT_FALSE(at::equal(updates(*transformer, row_keys(4, 0, 1, 64)), whole)) << "another step";
}

TEST_F(DropPath, SkipsTheSameUnderGradientCheckpointing) {
  const auto gradients = [](bool again) {
    VitSettings s;
    s.image_size = 8, s.patch_size = 4, s.width = 8, s.layers = 3, s.heads = 2, s.drop_path = 0.5;
    s.grad_checkpointing = again;
    at::manual_seed(4);
    Vit vit(s);
    const at::Tensor image = at::randn({16, 3, 8, 8}), weights = at::randn({16, 4, 8});
    at::Tensor loss;
    {
      const RowRngScope rows(row_keys(5, 0, 1, 16));
      loss = (vit.encode(image_input(image)).tokens * weights).sum();
    }
    loss.backward();
    std::vector<at::Tensor> out;
    for (const at::Tensor& parameter : vit.parameters())
      if (parameter.grad().defined()) out.push_back(parameter.grad().flatten());
    return at::cat(out);
  };
  expect_close(gradients(true), gradients(false), 1e-4);
}

// ---- layer decay

std::int64_t blocks_behind(const DualEncoder& model, const std::string& name) {
  const auto blocks = model.blocks_behind();
  return blocks.contains(name) ? blocks.at(name) : 0;
}

TEST(Depth, OfAParameterIsItsBlock) {
  ModelSettings s = small_clip();
  s.image.encoder.settings.set("regions", settings("{width: 5, first_block: 1}"));
  DualEncoder model(s);
  const std::map<std::string, std::int64_t> steps = {{"visual.conv1.weight", 3},
                                                     {"visual.class_embedding", 3},
                                                     {"visual.positional_embedding", 3},
                                                     {"visual.ln_pre.weight", 3},
                                                     {"visual.transformer.resblocks.0.ln_1.weight", 2},
                                                     {"visual.roi_proj.weight", 2},  // like block 0, this layer is followed by block 1
                                                     {"visual.roi_class_embedding", 2},
                                                     {"visual.transformer.resblocks.1.mlp.c_fc.bias", 1},
                                                     {"visual.ln_post.weight", 0},
                                                     {"visual.proj", 0},
                                                     {"token_embedding.weight", 3},
                                                     {"positional_embedding", 3},
                                                     {"transformer.resblocks.0.attn.in_proj_weight", 2},
                                                     {"transformer.resblocks.1.attn.in_proj_weight", 1},
                                                     {"ln_final.bias", 0},
                                                     {"text_projection", 0}};
  for (const auto& [name, behind] : steps) {
    EXPECT_TRUE(model.state_dict().contains(name)) << name;
    EXPECT_EQ(blocks_behind(model, name), behind) << name;
  }
}

TEST(Depth, OfAResnetCountsItsStages) {
  ModelSettings s = small_clip();
  s.preprocessing.image_size = 64;
  s.image = {{"modified_resnet", settings("{layers: [1, 2, 1, 1], width: 2}")},
             {"attention_pool_2d", settings("{heads: 4, output_dim: 6}")},
             {"none"}};
  DualEncoder model(s);
  const std::map<std::string, std::int64_t> steps = {{"visual.conv3.weight", 5},
                                                     {"visual.bn1.weight", 5},
                                                     {"visual.layer1.0.downsample.0.weight", 4},
                                                     {"visual.layer2.1.bn3.bias", 3},
                                                     {"visual.layer4.0.conv1.weight", 1},
                                                     {"visual.attnpool.c_proj.weight", 0},
                                                     {"visual.attnpool.positional_embedding", 0}};
  for (const auto& [name, behind] : steps) {
    EXPECT_TRUE(model.state_dict().contains(name)) << name;
    EXPECT_EQ(blocks_behind(model, name), behind) << name;
  }
}

// ---- slots

TEST(AttentionalPool, ReturnsTheOutputsOfItsQueriesOnlyOnRequest) {
  ModelSettings s = small_clip();
  s.image.encoder.settings.set("final_norm", config::Node::scalar("none"));
  s.image.readout = {"attentional_pool", settings("{output_dim: 6, heads: 2, queries: 3}")};
  s.image.projection = {"none"};
  DualEncoder model(s);
  Batch batch;
  batch.images["image"] = image_input(random_pixels(2));
  const Features plain = model.forward(batch, {.texts = {}});
  EXPECT_FALSE(plain.image().slots.defined());
  EXPECT_EQ(bytes_of(plain), 2 * 6 * 4) << "nothing else is returned";
  const Features asked = model.forward(batch, {.images = {{"image", {.slots = true}}}, .texts = {}});
  EXPECT_EQ(asked.image().slots.sizes(), (std::vector<std::int64_t>{2, 3, 6}));
  EXPECT_TRUE(at::equal(asked.image().global, plain.image().global));
}

// ---- LeFF

TEST(Leff, MixesAPatchOnlyWithItsNeighbors) {
  at::manual_seed(4);
  Leff leff({}, 4, 8, "gelu");
  const SequenceInfo sequence{{}, {3, 4}, /*prefix=*/1};
  const at::Tensor x = at::randn({1, 13, 4});
  at::Tensor changed = x.clone();
  changed[0][1 + 5] += 1;  // changes the patch in row 1, column 1
  const at::Tensor differs = (leff.forward(changed, sequence) - leff.forward(x, sequence)).abs().amax(2)[0] > 0;
  const at::Tensor expected = at::tensor({0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0}).to(at::kBool);
  EXPECT_TRUE(at::equal(differs, expected)) << differs;
}

TEST(Leff, NeedsTheGridOfPatches) {
  Leff leff({}, 4, 8, "gelu");
  EXPECT_THROW(leff.forward(at::zeros({1, 5, 4}), {}), c10::Error);
}

TEST(Leff, ReplacesTheMlpInTheFirstBlocksOfAVit) {
  VitSettings s;
  s.width = 8, s.layers = 3, s.heads = 2, s.image_size = 16, s.patch_size = 8, s.leff = LeffSettings{.layers = 2};
  const std::vector<std::string> names = parameter_names(Vit(s));
  const auto has = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  EXPECT_TRUE(has("transformer.resblocks.0.mlp.dwconv.weight") && has("transformer.resblocks.1.mlp.dwconv.weight"));
  EXPECT_FALSE(has("transformer.resblocks.2.mlp.dwconv.weight"));
}

TEST(Leff, RejectsUnsupportedSettings) {
  VitSettings s;
  s.layers = 3, s.leff = LeffSettings{.layers = 2};
  const auto problem = [](const VitSettings& wrong) { return validate(wrong).value_or(config::Problem{}).key; };
  EXPECT_EQ(problem(s), "");
  VitSettings wrong = s;
  wrong.leff->layers = 4;
  EXPECT_EQ(problem(wrong), "leff");
  wrong = s;
  wrong.regions = VitRegionSettings{};
  wrong.regions->first_block = 1;  // LeFF needs a grid, which regions do not have
  EXPECT_EQ(problem(wrong), "regions");
  wrong = s;
  wrong.patch_dropout = 0.5;
  EXPECT_EQ(problem(wrong), "patch_dropout");
  wrong = s;
  wrong.leff->norm = "batch";
  wrong.grad_checkpointing = true;
  EXPECT_EQ(problem(wrong), "grad_checkpointing");
}

}  // namespace
}  // namespace tessera
