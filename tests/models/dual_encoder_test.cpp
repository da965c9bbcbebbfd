#include <cmath>
#include <filesystem>
#include <limits>

#include "src/models/position_embedding.h"
#include "src/models/text_transformer.h"
#include "tests/models/small_models.h"
#include <tessera/base/log.h>
#include <tessera/models/registry.h>

namespace tessera {
namespace {

using State = std::map<std::string, at::Tensor>;

State copy_of(const DualEncoder& model) {
  State state;
  for (const auto& [name, tensor] : model.state_dict()) state[name] = tensor.detach().clone();
  return state;
}

TEST(DualEncoder, SeedDeterminesTheWeights) {
  at::manual_seed(1);
  const State first = copy_of(DualEncoder(small_clip()));
  at::manual_seed(1);
  const State second = copy_of(DualEncoder(small_clip()));
  for (const auto& [name, tensor] : first) EXPECT_TRUE(at::equal(tensor, second.at(name))) << name;
  at::manual_seed(1);
  SharedParameters shared;
  const Tower text(*resolve(small_clip(), "model").text, Modality::text, shared, "model.text");
  for (const auto& [name, tensor] : text.state_dict())
    EXPECT_TRUE(at::equal(tensor, first.at(name))) << name << ": measuring the weights draws no random numbers";
}

TEST(DualEncoder, RefusesMoreWeightsThanTheMachineHasMemory) {
  const auto refusal = [](const std::string& encoder) {
    ModelSettings s = small_clip();
    s.text->encoder.settings = settings(encoder);
    return error_of([&] { DualEncoder model(s); });
  };
  // No single tensor is too large.
  const std::string many = refusal("{width: 8192, layers: 1000, heads: 8}"), one = refusal("{width: 8, layers: 1, heads: 2, vocab_size: 900000000000000}");
  EXPECT_TRUE(many.starts_with("model: the weights need 2.9 TiB of memory, but this machine has only ")) << many;
  EXPECT_NE(many.find("; the largest settings are model.text.encoder.vocab_size 49408, model.text.encoder.width 8192, "), std::string::npos) << many;
  EXPECT_TRUE(one.starts_with("model: the weights need more than ")) << one;
  EXPECT_NE(one.find("; the largest settings are model.text.encoder.vocab_size 900000000000000, "), std::string::npos) << one;
  EXPECT_EQ(refusal("{layers: 1000000}"), "test.yaml:1: model.text.encoder.layers: expected from 0 to 1000, got 1000000");
}

TEST(DualEncoder, InitializesLikeOpenClip) {
  ModelSettings s = small_clip();
  s.text->encoder.settings = settings("{context_length: 77, vocab_size: 500, width: 256, layers: 2, heads: 4}");
  s.image.encoder.settings = settings("{patch_size: 2, width: 256, layers: 2, heads: 4}");
  s.image.projection.settings = s.text->projection.settings = settings("{embed_dim: 256}");
  const State state = copy_of(DualEncoder(s));
  const auto deviation = [&](const char* name) { return state.at(name).std().item<double>(); };
  const double width = 256;
  EXPECT_NEAR(deviation("token_embedding.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("positional_embedding"), 0.01, 0.0005);
  EXPECT_NEAR(deviation("transformer.resblocks.1.attn.in_proj_weight"), std::pow(width, -0.5), 0.002);
  EXPECT_NEAR(deviation("transformer.resblocks.1.attn.out_proj.weight"), std::pow(width * 4, -0.5), 0.002);
  EXPECT_NEAR(deviation("transformer.resblocks.1.mlp.c_proj.weight"), std::pow(width * 4, -0.5), 0.002);
  EXPECT_NEAR(deviation("transformer.resblocks.1.mlp.c_fc.weight"), std::pow(width * 2, -0.5), 0.002);
  EXPECT_NEAR(deviation("text_projection"), std::pow(width, -0.5), 0.002);
  EXPECT_NEAR(deviation("visual.positional_embedding"), std::pow(width, -0.5), 0.002);
  EXPECT_NEAR(deviation("visual.proj"), std::pow(width, -0.5), 0.002);
  EXPECT_EQ(state.at("visual.transformer.resblocks.0.attn.in_proj_bias").abs().max().item<float>(), 0);
}

TEST(DualEncoder, NormalizesPixelsWhereItsTowersAre) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  DualEncoder model(small_clip());
  model.eval();
  const at::Tensor pixels = random_pixels(2), embedding = model.encode_image(pixels).global;
  model.image_tower().to(at::kCUDA);  // like Python, which moves only the towers' tensors
  expect_close(model.encode_image(pixels.to(at::kCUDA)).global.cpu(), embedding, 1e-4);
}

TEST(DualEncoder, ComputesTokensOnlyOnRequest) {
  DualEncoder model(small_sparc());
  Batch batch;
  batch.images["image"] = image_input(random_pixels(2));
  batch.texts["caption"] = text_input(at::randint(20, {2, 8}, at::kLong), length_mask({3, 0}, 8));
  Needs needs;
  const Features plain = model.forward(batch, needs);
  EXPECT_FALSE(plain.image().tokens.defined() || plain.text().tokens.defined() || plain.image().dense.defined());
  needs.images["image"].tokens = needs.texts["caption"].tokens = true;
  const Features full = model.forward(batch, needs);
  EXPECT_EQ(full.image().tokens.sizes(), (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(full.text().tokens.sizes(), (std::vector<std::int64_t>{2, 8, 6}));
  EXPECT_EQ(full.text().tokens[1].abs().max().item<float>(), 0);
  EXPECT_TRUE(full.text().global.isfinite().all().item<bool>());
  EXPECT_TRUE(model.encode_image(batch.images["image"], {.dense = true}).dense.defined());
  EXPECT_EQ(model.embed_dim(), 6);
  EXPECT_EQ(model.grid(), config::Size(2, 2));
}

TEST(DualEncoder, NormalizesBytesAndKeepsFloats) {
  DualEncoder model(small_clip());
  const at::Tensor pixels = random_pixels(2);
  const Preprocessing p;
  at::Tensor normalized = pixels.to(at::kFloat) / 255;
  for (int c = 0; c < 3; ++c) normalized.select(1, c).sub_(p.mean[c]).div_(p.std[c]);
  expect_close(model.encode_image(pixels).global, model.encode_image(normalized).global, 1e-5);
}

TEST(DualEncoder, StateReadsBackAndSharesMemory) {
  for (const ModelSettings& s : {small_clip(), small_sparc()}) {
    DualEncoder first(s), second(s);
    second.load_state(copy_of(first), "a file");
    for (const auto& [name, tensor] : first.state_dict()) EXPECT_TRUE(at::equal(tensor, second.state_dict().at(name)));
    std::set<const void*> parameters;
    for (const at::Tensor& parameter : first.parameters()) parameters.insert(parameter.unsafeGetTensorImpl());
    std::size_t found = 0;
    for (const auto& [name, tensor] : first.state_dict()) found += parameters.count(tensor.unsafeGetTensorImpl());
    EXPECT_EQ(found, parameters.size());
  }
}

TEST(LoadState, AcceptsTheTextPrefixOfOpenClipAndTheScale) {
  DualEncoder first(small_clip()), second(small_clip());
  State state;
  for (const auto& [name, tensor] : copy_of(first)) state[name.starts_with("visual.") ? name : "text." + name] = tensor;
  state["logit_scale"] = at::tensor(2.5F);
  state["logit_bias"] = at::tensor(-10.F);
  second.load_state(state, "a file");
  EXPECT_TRUE(at::equal(first.state_dict().at("ln_final.weight"), second.state_dict().at("ln_final.weight")));
}

TEST(LoadState, ReportsTensorNamesOfAFileOfAnotherArchitecture) {
  DualEncoder model(small_clip());
  const State bert = {{"bert.embeddings.LayerNorm.bias", at::zeros({2})}, {"bert.pooler.dense.bias", at::zeros({2})},
                      {"cls.a", at::zeros({1})},                          {"cls.b", at::zeros({1})},
                      {"cls.c", at::zeros({1})}};
  const std::string missing = "x.pt: tensor ln_final.bias [8] is missing: the file is not of this architecture; it has ";
  EXPECT_EQ(error_of([&] { model.load_state(bert, "x.pt"); }),
            missing + "5 tensors, such as bert.embeddings.LayerNorm.bias, bert.pooler.dense.bias, cls.a and cls.b");
  EXPECT_EQ(error_of([&] { model.load_state({{"w", at::zeros({1})}}, "x.pt"); }), missing + "1 tensor: w");
}

TEST(LoadState, WarnsOnceAboutNonFiniteValues) {
  DualEncoder model(small_clip());
  State state = copy_of(model);
  const auto said = [&] {
    testing::internal::CaptureStderr();
    model.load_state(state, "x.pt");
    return testing::internal::GetCapturedStderr();
  };
  log::set_level(log::Level::info);
  EXPECT_EQ(said(), "");
  state["ln_final.weight"][1] = std::nan("");
  EXPECT_NE(said().find("x.pt: 1 tensor holds NaN or infinite values: ln_final.weight\n"), std::string::npos);
  state["ln_final.bias"][0] = std::numeric_limits<float>::infinity();
  EXPECT_NE(said().find("x.pt: 2 tensors hold NaN or infinite values: ln_final.bias is the first\n"), std::string::npos);
}

TEST(LoadState, SaysThatPositionsAreResampled) {
  const ModelSettings small = small_clip();
  ModelSettings large = with_image_size(resolve(small), 32);
  large.text->encoder.settings.set("context_length", config::Node::scalar("20"));
  DualEncoder model(large);
  const State state = copy_of(DualEncoder(small));
  const auto said = [&](auto... level) {
    testing::internal::CaptureStderr();
    model.load_state(state, "x.pt", level...);
    return testing::internal::GetCapturedStderr();
  };
  log::set_level(log::Level::info);
  const std::string warned = said();
  EXPECT_NE(warned.find("warning"), std::string::npos) << warned;
  EXPECT_NE(warned.find("x.pt: image positions: the file's 2 x 2 (images of 16 x 16 pixels) are resampled to 4 x 4 (32 x 32 pixels)\n"), std::string::npos) << warned;
  EXPECT_NE(warned.find("x.pt: text positions: the file's 8 are interpolated to 20\n"), std::string::npos) << warned;
  EXPECT_EQ(said(log::Level::info).find("warning"), std::string::npos) << "a run that asked for another size";
}

TEST(LoadState, NamesTheTensorThatDoesNotFit) {
  DualEncoder model(small_clip());
  const State good = copy_of(model);
  const auto message = [&](const std::function<void(State&)>& change) {
    State state = good;
    change(state);
    return error_of([&] { model.load_state(state, "x.safetensors"); });
  };
  EXPECT_EQ(message([](State& s) { s.erase("ln_final.bias"); }),
            "x.safetensors: tensor ln_final.bias [8] is missing: the file is not of this architecture");
  EXPECT_EQ(message([](State& s) {
              s["visual.proj"] = at::zeros({12, 7});
            }),
            "x.safetensors: tensor visual.proj is [12, 7], but the model's settings make it [12, 6]");
  EXPECT_EQ(message([](State& s) {
              s["visual.head.weight"] = at::zeros({2, 3});
            }),
            "x.safetensors: tensor visual.head.weight [2, 3] is left over: the model's settings have no such part");
  EXPECT_EQ(message([](State& s) {
              s["visual.positional_embedding"] = at::zeros({4, 12});
            }),  // 4 rows: a class token and 3 patches, which form no square grid
            "x.safetensors: tensor visual.positional_embedding is [4, 12], but the model's settings make it [5, 12]");
}

TEST(LoadState, LeavesTheModelUnchangedOnAnError) {
  DualEncoder model(small_clip());
  const State before = copy_of(model);
  State state = before;
  for (auto& [name, tensor] : state) tensor = tensor + 1;
  state.erase("visual.proj");
  EXPECT_THROW(model.load_state(state, "x"), UserError);
  for (const auto& [name, tensor] : model.state_dict()) EXPECT_TRUE(at::equal(tensor, before.at(name)));
}

TEST(LoadState, ResamplesPositionsOfAnotherGridAndLength) {
  DualEncoder small(small_clip());
  ModelSettings s = small_clip();
  s.preprocessing.image_size = 32;
  s.text->encoder.settings.set("context_length", config::Node::scalar("12"));
  DualEncoder large(s);
  const State state = copy_of(small);
  large.load_state(state, "a file");
  const State loaded = large.state_dict();
  EXPECT_TRUE(at::equal(loaded.at("visual.positional_embedding"),
                        resize_position_embedding(state.at("visual.positional_embedding"), 4, 2, 1)));
  EXPECT_TRUE(at::equal(loaded.at("visual.positional_embedding")[0], state.at("visual.positional_embedding")[0]));
  EXPECT_EQ(loaded.at("positional_embedding").size(0), 12);
}

TEST(PositionEmbedding, ConstantsStayConstantAndPrefixesAreCopied) {
  const at::Tensor embedding = at::cat({at::randn({2, 3}), at::ones({6, 3})});
  const at::Tensor resized = resize_position_embedding(embedding, {5, 7}, {2, 3}, 2);
  ASSERT_EQ(resized.size(0), 37);
  EXPECT_TRUE(at::equal(resized.slice(0, 0, 2), embedding.slice(0, 0, 2)));
  expect_close(resized.slice(0, 2), at::ones({35, 3}), 1e-6);
  EXPECT_TRUE(at::equal(resize_position_embedding(embedding, {2, 3}, {2, 3}, 2), embedding));
}

TEST(PositionEmbedding, TextIsLinearBetweenHalfPixelCentersAndClamped) {
  const at::Tensor resized = resize_text_position_embedding(at::tensor({0.F, 4.F}).view({2, 1}), 4);
  expect_close(resized.view(-1), at::tensor({0.F, 1.F, 3.F, 4.F}), 1e-6);
}

// A table of 3 positions becomes 1 + 2 * 3 = 7: the first position is kept, and the other two are stretched by a factor of 3.
TEST(PositionEmbedding, StretchesTextBeyondTheKeptPositionsLikeLongClip) {
  const at::Tensor table = at::tensor({7.F, 0.F, 3.F}).view({3, 1});
  const at::Tensor stretched = stretch_text_position_embedding(table, 7, 1);
  expect_close(stretched.view(-1), at::tensor({7.F, 0.F, 1.F, 2.F, 3.F, 4.F, 5.F}), 1e-6);
  EXPECT_TRUE(at::equal(stretch_text_position_embedding(table, 3, 1), table));
  EXPECT_TRUE(at::equal(stretch_text_position_embedding(table, 2, 1), table.slice(0, 0, 2))) << "a shorter length cuts the table";
  EXPECT_THROW(stretch_text_position_embedding(table, 7, 2), c10::Error);
}

// Long-CLIP's loop computes position 20 + 4 i + k as (1 - k/4) p_i + k/4 p_(i+1), where p_i is position 20 + i of the original table. At
// the last p_i, the loop extrapolates: p_i + k/4 (p_i - p_(i-1)).
TEST(PositionEmbedding, StretchesClipTo248) {
  const at::Tensor table = at::randn({77, 3});
  at::Tensor expected = at::empty({248, 3});
  for (std::int64_t i = 0; i < 20; ++i) expected[i] = table[i];
  for (std::int64_t i = 0; i < 57; ++i)
    for (std::int64_t k = 0; k < 4; ++k) {
      const std::int64_t from = 20 + std::min<std::int64_t>(i, 55);
      expected[20 + 4 * i + k] = table[20 + i] + 0.25 * static_cast<double>(k) * (table[from + 1] - table[from]);
    }
  expect_close(stretch_text_position_embedding(table, 248, 20), expected, 1e-5);
}

TEST(PositionEmbedding, TextTransformerStretchesIfItsSettingsSaySo) {
  TextTransformerSettings settings;
  settings.vocab_size = 5;
  settings.width = 4;
  settings.heads = 1;
  settings.layers = 1;
  settings.context_length = 10;
  settings.kept_positions = 2;
  const at::Tensor table = at::randn({6, 4});
  EXPECT_TRUE(at::equal(TextTransformer(settings).adapt_weight("positional_embedding", table),
                        stretch_text_position_embedding(table, 10, 2)));
  settings.kept_positions = 5;
  EXPECT_THROW(TextTransformer(settings).adapt_weight("positional_embedding", table), UserError);
  settings.kept_positions.reset();
  EXPECT_TRUE(at::equal(TextTransformer(settings).adapt_weight("positional_embedding", table),
                        resize_text_position_embedding(table, 10)));
  settings.kept_positions = 2;
  settings.position_rows = 12;
  EXPECT_TRUE(validate(settings).has_value());
}

// ---- no text tower

ModelSettings image_alone() {
  ModelSettings s = small_clip();
  s.text.reset();
  return s;
}

TEST(WithoutTextTower, ModelIsItsImageTower) {
  DualEncoder model(image_alone());
  EXPECT_FALSE(model.has_text_tower());
  EXPECT_EQ(model.embed_dim(), 6);
  const State state = model.state_dict();
  for (const auto& [name, tensor] : state) EXPECT_TRUE(is_image_parameter(name)) << name;
  Batch batch;
  batch.images["image"] = image_input(random_pixels(2));
  batch.keys = {"a", "b"};
  const Features features = model.forward(batch, {.texts = {}});
  EXPECT_EQ(features.image().global.sizes(), (std::vector<std::int64_t>{2, 6}));
  EXPECT_TRUE(features.texts.empty());
  DualEncoder other(image_alone());
  other.load_state(copy_of(model), "a file");
  EXPECT_TRUE(at::equal(other.encode_image(batch.images["image"]).global, features.image().global));
}

TEST(WithoutTextTower, RejectsTextsAndTextWeights) {
  DualEncoder model(image_alone());
  const TowerInput text = text_input(at::zeros({1, 8}, at::kLong));
  Batch batch;
  batch.images["image"] = image_input(random_pixels(1));
  batch.texts["caption"] = text;
  const std::string expected = "this model has no text tower (model.text is null)";
  EXPECT_EQ(error_of<c10::Error>([&] { model.encode_text(text); }), expected);
  EXPECT_EQ(error_of<c10::Error>([&] { model.text_tower(); }), expected);
  EXPECT_EQ(error_of<c10::Error>([&] { model.forward(batch, {}); }), expected);
  EXPECT_EQ(error_of([&] { model.load_state(copy_of(DualEncoder(small_clip())), "clip.safetensors"); }),
            "clip.safetensors: tensor ln_final.bias [8] is left over: the model's settings have no such part");
}

TEST(WithoutTextTower, SettingsReadBackAsNull) {
  const config::Node dumped = config::dump(resolve(image_alone()));
  EXPECT_TRUE(dumped.find("text")->is_null());
  const auto again = config::read<ModelSettings>(dumped, "model");
  EXPECT_FALSE(again.text.has_value());
  EXPECT_TRUE(config::read<ModelSettings>(settings("{}"), "model").text.has_value()) << "the default has a text tower";
}

// ---- settings

std::string settings_error(const std::function<void(ModelSettings&)>& change, ModelSettings s = small_clip()) {
  change(s);
  return error_of([&] { DualEncoder model(s); });
}

TEST(ModelSettings, ErrorsForImpossibleCombinationsNameThePlace) {
  const auto encoder = [](const char* yaml) {
    return [yaml](ModelSettings& s) { s.image.encoder.settings = settings(yaml); };
  };
  EXPECT_EQ(settings_error(encoder("{patch_size: 8, width: 12, heads: 5}")),
            "test.yaml:1: model.image.encoder.heads: 5 does not divide width 12");
  EXPECT_EQ(settings_error(encoder("{patch_size: 7, image_size: 16, width: 12, heads: 3}")),
            "test.yaml:1: model.image.encoder.image_size: 16 x 16 is not a multiple of patch_size 7 x 7: try [14, 14]");
  EXPECT_EQ(settings_error(encoder("{patch_size: 8, image_size: 24, width: 12, heads: 3}")),
            "model.image.encoder.image_size is 24 x 24, but model.preprocessing.image_size is 16 x 16: give only the "
            "latter, or make "
            "them equal");
  EXPECT_EQ(settings_error(encoder("{patch_size: 8, width: 12, heads: 3, class_token: false}")),
            "model.image.readout: cls needs a class token, which this encoder does not have: set encoder.class_token: "
            "true, or use gap");
  EXPECT_EQ(settings_error(encoder("{patch_sise: 8}")),
            "test.yaml:1: model.image.encoder.patch_sise: unknown key: did you mean patch_size?");
  EXPECT_EQ(settings_error([](ModelSettings& s) { s.image.readout = {"eos"}; }),
            "model.image.readout: eos is a read-out for text towers; images have no end token: use cls, gap or max");
  EXPECT_EQ(settings_error([](ModelSettings& s) { s.text->encoder = {"vit"}; }),
            "model.text.encoder: vit is an encoder of images, but this is the text tower");
  EXPECT_EQ(settings_error([](ModelSettings& s) { s.text->projection.settings = settings("{embed_dim: 7}"); }),
            "model: the image tower's embedding is 6 wide, the text tower's 7: make them equal (projection.embed_dim)");
  EXPECT_EQ(settings_error([](ModelSettings& s) {
              s.image.readout = {"attentional_pool", settings("{output_dim: 6, heads: 2}")};
            }),
            "model.image.encoder.final_norm: attentional_pool brings its own ln_post.weight: use final_norm: none");
}

TEST(ModelSettings, EncoderTakesTheImageSizeOfThePreprocessing) {
  const ModelSettings s = resolve(small_clip());
  EXPECT_EQ(s.image.encoder.settings.find("image_size")->text(), "16");
  EXPECT_NE(s.text->encoder.settings.find("norm_eps"), nullptr);
}

TEST(ModelSettings, CocaAndResnetTowersHaveTheNamesOfOpenClip) {
  ModelSettings s = small_clip();
  s.image.encoder.settings.set("final_norm", config::Node::scalar("none"));
  s.image.readout = {"attentional_pool", settings("{output_dim: 6, heads: 2, queries: 3}")};
  s.image.projection = {"none"};
  const State coca = DualEncoder(s).state_dict();
  for (const char* name :
       {"visual.attn_pool.query", "visual.attn_pool.attn.q_proj_weight", "visual.ln_post.weight", "visual.proj"})
    EXPECT_TRUE(coca.contains(name)) << name;
  s.preprocessing.image_size = 64;
  s.image = {{"modified_resnet", settings("{layers: [1, 1, 1, 1], width: 2}")},
             {"attention_pool_2d", settings("{heads: 4, output_dim: 6}")},
             {"none"}};
  DualEncoder resnet(s);
  for (const char* name : {"visual.attnpool.c_proj.weight", "visual.layer1.0.downsample.0.weight",
                           "visual.bn1.running_mean", "visual.bn1.num_batches_tracked"})
    EXPECT_TRUE(resnet.state_dict().contains(name)) << name;
  State state = copy_of(resnet);
  state.erase("visual.bn1.num_batches_tracked");
  resnet.load_state(state, "older file");
  EXPECT_EQ(resnet.encode_image(random_pixels(2, 64)).global.sizes(), (std::vector<std::int64_t>{2, 6}));
}

}  // namespace
}  // namespace tessera
