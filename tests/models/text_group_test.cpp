// Tests the encoders of the text group transformer and GroupViT, and their read-outs.
#include <set>

#include "src/models/caption_decoder.h"
#include "src/models/groupvit.h"
#include "src/foreign/groupvit_checkpoint.h"
#include "src/models/per_sample_rng.h"
#include "src/models/text_group_encoder.h"
#include "tests/models/small_models.h"
#include "tests/support/groupvit_checkpoint.h"

namespace tessera {
namespace {

constexpr std::int64_t kVocabulary = 20;

ModelSettings small_text_group() {
  ModelSettings s;
  s.image = {{"groupvit", settings("{patch_size: 4, width: 12, depths: [1, 1, 1], heads: [2, 2, 2], "
                                   "num_group_tokens: [4, 2, 0], num_output_groups: [4, 3]}")},
             {"groups", settings("{output_dim: 6}")},
             {"none"}};
  s.text = {{"text_group_encoder", settings("{context_length: 8, vocab_size: 20, width: 8, heads: 2, token_layers: 2, "
                                            "group_layers: 1, num_groups: 3}")},
            {"groups", settings("{output_dim: 6}")},
            {"none"}};
  s.preprocessing.image_size = 16;
  return s;
}

at::Tensor random_ids(std::int64_t batch, std::int64_t length) {
  return at::randint(kVocabulary, {batch, length}, at::kLong);
}

TEST(TextGroupEncoder, GroupsDoNotDependOnPadding) {
  at::manual_seed(2);
  DualEncoder model(small_text_group());
  model.eval();
  const at::Tensor ids = random_ids(3, 5), mask = length_mask({5, 2, 1}, 5);
  const ViewNeeds needs{.tokens = true, .slots = true, .attention = true};
  const TowerFeatures out = model.encode_text(text_input(ids, mask), needs);
  EXPECT_EQ(out.tokens.sizes(), (std::vector<std::int64_t>{3, 3, 8}));
  EXPECT_FALSE(out.mask.defined());
  expect_close(out.global, out.slots.mean(1));
  EXPECT_EQ(out.slots.sizes(), (std::vector<std::int64_t>{3, 3, 6}));
  expect_close(out.attention.sum(1), mask.to(at::kFloat));

  const at::Tensor junk = at::cat({ids.masked_fill(~mask, -5), at::full({3, 3}, 1 << 30, at::kLong)}, 1);
  const TowerFeatures longer = model.encode_text(text_input(junk, length_mask({5, 2, 1}, 8)), needs);
  expect_close(longer.tokens, out.tokens, 1e-5);
  expect_close(longer.attention.slice(2, 0, 5), out.attention, 1e-5);

  model.zero_grad();
  model.encode_text(text_input(at::full({1, 4}, 7, at::kLong), length_mask({2}, 4))).global.sum().backward();
  const at::Tensor gradient = model.state_dict().at("token_embedding.weight").grad();
  EXPECT_GT(gradient[7].abs().sum().item<float>(), 0);
  EXPECT_EQ(gradient[0].abs().sum().item<float>(), 0) << "padding is replaced by id 0 and has no gradient";
}

TEST(TextGroupEncoder, IsFiniteForATextWithoutTokens) {
  DualEncoder model(small_text_group());
  const TowerFeatures out =
      model.encode_text(text_input(random_ids(2, 4), length_mask({0, 4}, 4)), {.tokens = true, .attention = true});
  EXPECT_TRUE(at::isfinite(out.global).all().item<bool>());
  EXPECT_EQ(out.attention[0].abs().sum().item<float>(), 0);
  out.global.square().sum().backward();
  for (const at::Tensor& parameter : model.text_tower().parameters()) {
    const at::Tensor& gradient = parameter.grad();
    EXPECT_TRUE(!gradient.defined() || at::isfinite(gradient).all().item<bool>());
  }
}

TEST(TextGroupEncoder, GroupsInTrainingDependOnlyOnRowKeys) {
  at::manual_seed(3);
  DualEncoder model(small_text_group());
  const at::Tensor ids = random_ids(6, 8), keys = row_keys(9, 0, 1, 6);
  Needs needs;
  needs.images.clear();
  const auto encode = [&](std::int64_t first, std::int64_t count, const at::Tensor& of_rows) {
    Batch batch;
    batch.texts["caption"] = text_input(ids.narrow(0, first, count), at::ones({count, 8}, at::kBool));
    const RowRngScope rows(of_rows.narrow(0, first, count));
    return model.forward(batch, needs).text().global;
  };
  const at::Tensor whole = encode(0, 6, keys);
  expect_close(at::cat({encode(0, 2, keys), encode(2, 4, keys)}), whole);
  EXPECT_GT((encode(0, 6, row_keys(10, 0, 1, 6)) - whole).abs().max().item<float>(), 1e-4) << "there is noise";
}

TEST(TextGroupEncoder, RejectsTooLongTextsAndBadHeads) {
  DualEncoder model(small_text_group());
  EXPECT_THROW(model.encode_text(text_input(random_ids(2, 9))), c10::Error);
  ModelSettings s = small_text_group();
  s.text->encoder.settings.set("heads", config::Node::scalar("3"));
  EXPECT_EQ(error_of([&] { resolve(s); }), "model.text.encoder.heads: 3 does not divide width 8");
}

TEST(GroupVit, AttentionIsTheShareOfEachGroupInEachPatch) {
  at::manual_seed(4);
  DualEncoder model(small_text_group());
  model.eval();
  const at::Tensor pixels = at::randn({2, 3, 16, 16});
  const TowerFeatures out = model.encode_image(pixels, {.tokens = true, .slots = true, .attention = true});
  EXPECT_EQ(out.attention.sizes(), (std::vector<std::int64_t>{2, 3, 16}));
  expect_close(out.attention.sum(1), at::ones({2, 16}));
  auto& encoder = dynamic_cast<GroupVit&>(model.image_tower().encoder());
  const GroupVit::Stages stages = encoder.group(pixels);
  ASSERT_EQ(stages.grouped.size(), 2u);
  expect_close(out.attention, at::matmul(stages.grouped[1].soft_assignment, stages.grouped[0].soft_assignment));
  expect_close(out.tokens, stages.groups);
  EXPECT_EQ(model.grid(), config::Size(4));
}

TEST(GroupVit, SlotsOfGroupsAttendToThePatchesOfTheGroups) {
  at::manual_seed(5);
  ModelSettings s = small_text_group();
  s.image.readout = {"sparo", settings("{slots: 2, slot_width: 3, key_width: 4}")};
  DualEncoder model(s);
  model.eval();
  const TowerFeatures out = model.encode_image(at::randn({2, 3, 16, 16}), {.slots = true, .attention = true});
  EXPECT_EQ(out.attention.sizes(), (std::vector<std::int64_t>{2, 2, 16}));
}

TEST(GroupVit, OnlyATrainedEncoderIsRandom) {
  at::manual_seed(6);
  DualEncoder model(small_text_group());
  const at::Tensor pixels = at::randn({4, 3, 16, 16});
  EXPECT_FALSE(at::equal(model.encode_image(pixels).global, model.encode_image(pixels).global));
  for (at::Tensor& parameter : model.image_tower().encoder().parameters()) parameter.set_requires_grad(false);
  const at::Tensor frozen = model.encode_image(pixels).global;
  EXPECT_TRUE(at::equal(model.encode_image(pixels).global, frozen));
  EXPECT_TRUE(frozen.requires_grad()) << "the head is trained";
  model.eval();
  EXPECT_TRUE(at::equal(model.encode_image(pixels).global, frozen));
}

TEST(MlpHead, OfAFrozenTowerKeepsItsStatistics) {
  at::manual_seed(6);
  ModelSettings s = small_text_group();
  s.image.readout.settings.set("num_layers", config::parse_yaml("2", "test"));
  DualEncoder model(s);
  for (at::Tensor& parameter : model.image_tower().parameters()) parameter.set_requires_grad(false);
  const auto copies = [&] {
    std::vector<at::Tensor> out;
    for (const at::Tensor& buffer : model.image_tower().buffers()) out.push_back(buffer.clone());
    return out;
  };
  const std::vector<at::Tensor> before = copies();
  ASSERT_FALSE(before.empty());
  const at::Tensor pixels = at::randn({4, 3, 16, 16});
  const at::Tensor in_training = model.encode_image(pixels).global;
  const std::vector<at::Tensor> after = copies();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(after[i], before[i])) << i;
  model.eval();
  EXPECT_TRUE(at::equal(model.encode_image(pixels).global, in_training));
}

TEST(GroupVit, ResamplesWeightsOfAnotherSize) {
  DualEncoder small(small_text_group());
  ModelSettings s = small_text_group();
  s.preprocessing.image_size = 24;
  DualEncoder large(s);
  large.load_state(small.state_dict(), "small");
  large.eval(), small.eval();
  const at::Tensor pixels = at::randn({1, 3, 24, 24});
  expect_close(large.encode_image(pixels).global, small.encode_image(pixels).global, 1e-5);
}

TEST(GroupVit, RejectsSettingsThatDoNotFit) {
  const auto expect_error = [](const std::string& key, const std::string& value, const std::string& message) {
    ModelSettings s = small_text_group();
    s.image.encoder.settings.set(key, config::parse_yaml(value, "test"));
    const std::string error = error_of([&] { resolve(s); });
    EXPECT_TRUE(error.ends_with(message)) << error;
  };
  expect_error("heads", "[2, 2]", "model.image.encoder.heads: has 2 numbers, but depths has 3 stages");
  expect_error("heads", "[2, 5, 2]", "model.image.encoder.heads: 5 does not divide width 12");
  expect_error("num_group_tokens", "[4, 2, 1]",
               "model.image.encoder.num_group_tokens: must be at least 1 in each stage except the last, and 0 in the last");
  expect_error("num_output_groups", "[4]",
               "model.image.encoder.num_output_groups: has 1 numbers, but there are 2 stages before the last");
  expect_error("patch_size", "5", "is not a multiple of patch_size 5");
}

// Layer decay depends on how many blocks come after a parameter.
TEST(GroupEncoders, ParametersBelongToBlocks) {
  DualEncoder model(small_text_group());
  const auto place = [](Tower& tower, const std::string& name) {
    const auto blocks = tower.blocks_behind();
    return blocks.contains(name) ? blocks.at(name) : 0;
  };
  Tower &image = model.image_tower(), &text = model.text_tower();
  EXPECT_EQ(place(image, "patch_embed.proj.weight"), 4);
  EXPECT_EQ(place(image, "layers.0.group_token"), 4);
  EXPECT_EQ(place(image, "layers.0.blocks.0.norm1.weight"), 3);
  EXPECT_EQ(place(image, "layers.0.downsample.assign.proj.weight"), 3);
  EXPECT_EQ(place(image, "layers.1.blocks.0.norm1.weight"), 2);
  EXPECT_EQ(place(image, "layers.2.blocks.0.attn.qkv.weight"), 1);
  EXPECT_EQ(place(image, "norm.weight"), 0);
  EXPECT_EQ(place(text, "token_embedding.weight"), 4);
  EXPECT_EQ(place(text, "token_blocks.1.ln_1.weight"), 2);
  EXPECT_EQ(place(text, "grouping.assign.proj.weight"), 2);
  EXPECT_EQ(place(text, "group_blocks.0.ln_1.weight"), 1);
  EXPECT_EQ(place(text, "ln_final.weight"), 0);
}

TEST(GroupEncoders, SettingsDetermineTheInitialEmbeddings) {
  at::manual_seed(9);
  TextGroupEncoderSettings settings;
  settings.vocab_size = 50;
  settings.token_deviation = 0.125;
  settings.position_deviation = 0.5;
  const auto encoder = TextGroupEncoder(settings).named_parameters();
  EXPECT_NEAR(encoder["token_embedding.weight"].std().item<double>(), 0.125, 0.005);
  EXPECT_NEAR(encoder["positional_embedding"].std().item<double>(), 0.5, 0.02);
  CaptionDecoder decoder({.position_deviation = 0.25}, at::zeros({5, 128}), "decoder");
  EXPECT_NEAR(decoder.named_parameters()["positional_embedding"].std().item<double>(), 0.25, 0.01);
}

TEST(CaptionDecoder, AttendsOnlyToEarlierTokensAndGroups) {
  at::manual_seed(8);
  const at::Tensor table = at::randn({7, 4});
  CaptionDecoder decoder({.context_length = 6, .heads = 2}, table, "decoder");
  const at::Tensor groups = at::randn({1, 3, 4}), mask = length_mask({6}, 6);
  at::Tensor ids = at::tensor({1, 2, 3, 4, 5, 6}).unsqueeze(0);
  const at::Tensor before = decoder.forward(ids, mask, groups);
  EXPECT_EQ(before.sizes(), (std::vector<std::int64_t>{1, 5, 4}));
  ids[0][3] = 0;
  const at::Tensor after = decoder.forward(ids, mask, groups);
  expect_close(after.slice(1, 0, 3), before.slice(1, 0, 3));
  EXPECT_GT((after[0][3] - before[0][3]).abs().max().item<float>(), 1e-4);
  expect_close(decoder.forward(ids, mask, groups.flip(1)), after, 1e-5);  // the order of the groups does not matter
  ids = ids.masked_fill(~length_mask({3}, 6), -1);
  expect_close(decoder.forward(ids, length_mask({3}, 6), groups).slice(1, 0, 2), before.slice(1, 0, 2));
}

TEST(CaptionDecoder, RejectsTooLongCaptionsAndBadHeads) {
  const at::Tensor table = at::randn({7, 4});
  EXPECT_EQ(error_of([&] { CaptionDecoder({.heads = 3}, table, "objective.decoder"); }),
            "objective.decoder.heads: 3 does not divide the width of the text encoder's token table, 4");
  CaptionDecoder decoder({.context_length = 3}, table, "objective.decoder");
  EXPECT_EQ(error_of([&] {
              decoder.forward(random_ids(1, 4), at::ones({1, 4}, at::kBool), at::zeros({1, 2, 4}));
            }),
            "objective.decoder.context_length is 3, but captions have up to 4 tokens: make it at least that many");
  EXPECT_THROW(decoder.forward(random_ids(1, 3), at::ones({1, 3}, at::kBool), at::zeros({1, 2, 5})), c10::Error);
}

TEST(GroupVitCheckpoint, LoadsTensorsOfTheAuthorsCodeUnderAnyWrapper) {
  ModelSettings s = groupvit_model();
  EXPECT_EQ(s.preprocessing.image_size, config::Size(224));
  s.image.encoder.settings = small_text_group().image.encoder.settings;
  s.image.readout.settings.set("inner_dim", config::Node::scalar("10"));
  s.text->encoder.settings = settings("{context_length: 8, vocab_size: 20, width: 8, heads: 2, layers: 1}");
  s.text->projection.settings.set("inner_dim", config::Node::scalar("10"));
  s.preprocessing.image_size = 16;
  DualEncoder model(s), loaded(s);
  const std::map<std::string, at::Tensor> theirs = as_groupvit_wrote(model);
  for (const std::string wrapper : {"", "module.", "model."}) {
    std::map<std::string, at::Tensor> wrapped;
    for (const auto& [name, tensor] : theirs) wrapped[wrapper + name] = tensor;
    loaded.load_state(from_groupvit(wrapped, "file"), "file");
    for (const auto& [name, tensor] : model.state_dict())
      EXPECT_TRUE(at::equal(loaded.state_dict().at(name), tensor)) << wrapper << " " << name;
  }
  EXPECT_EQ(from_groupvit(theirs, "file").at("logit_scale").item<float>(), 3.0F);
}

TEST(GroupVitCheckpoint, RejectsOtherFiles) {
  EXPECT_EQ(error_of([] {
              from_groupvit({{"logit_scale", at::zeros({})}}, "a.safetensors");
            }),
            "a.safetensors: no tensor img_encoder.*: this is not a checkpoint of GroupViT's code");
  EXPECT_NE(error_of([] {
              from_groupvit({{"visual.conv1.weight", at::zeros({})}}, "a.safetensors");
            }).find("a.safetensors: tensor visual.conv1.weight is not one of GroupViT's"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
