#include <torch/csrc/autograd/autograd.h>

#include "src/models/batch_norm.h"
#include "src/models/layers.h"
#include "src/models/modified_resnet.h"
#include "src/models/per_sample_rng.h"
#include "src/models/position_embedding.h"
#include "src/models/text_transformer.h"
#include "src/models/vit.h"
#include "tests/models/small_models.h"
#include <tessera/models/registry.h>

namespace tessera {
namespace {

at::Tensor random_images(std::int64_t count, config::Size size = 16) {
  return at::randn({count, 3, size.height, size.width}, at::kDouble);
}

// ---- masks of tokens

/// A text encoder that outputs one token per pair of neighboring words. All four channels of a token are the mean of the words' ids.
class WordPairs : public Encoder {
 public:
  Encoded encode(const TowerInput& input) override {
    const at::Tensor real = input.mask.unflatten(1, {-1, 2}), ids = input.ids.unflatten(1, {-1, 2}).to(at::kFloat);
    Encoded out;
    out.mask = real.any(2);
    out.tokens = ((ids * real).sum(2) / real.sum(2).clamp_min(1)).unsqueeze(2).expand({-1, -1, 4});
    return out;
  }
  Modality modality() const override { return Modality::text; }
  std::int64_t width() const override { return 4; }
};

TEST(TokenMask, BelongsToTheTokensNotToTheInput) {
  if (!encoders().contains("word_pairs"))
    encoders().add<config::NoSettings>("word_pairs", "of this test",
                                       [](const config::NoSettings&) { return std::make_shared<WordPairs>(); });
  ModelSettings s = small_clip();
  s.text = TowerSettings{{"word_pairs"}, {"gap"}, {"linear", settings("{embed_dim: 6}")}};
  DualEncoder model(s);
  const TowerInput texts = text_input(at::randint(20, {2, 6}, at::kLong), length_mask({3, 0}, 6));
  const at::Tensor groups = length_mask({2, 0}, 3);
  const TowerFeatures direct = model.encode_text(texts, {.tokens = true, .input_ids = true});
  EXPECT_TRUE(at::equal(direct.mask, groups));
  EXPECT_TRUE(at::equal(direct.input.mask, texts.mask) && at::equal(direct.input.ids, texts.ids));
  Batch batch;
  batch.texts["caption"] = texts;
  const Features features = model.forward(batch, {.images = {}, .texts = {{"caption", {.tokens = true}}}});
  EXPECT_TRUE(at::equal(features.text().mask, groups));
  EXPECT_FALSE(features.text().input.ids.defined() || features.text().input.mask.defined()) << "the input was not requested";
}

TEST(TextViews, AreNotEncodedIfOnlyIdsAreRequested) {
  DualEncoder model(small_clip());
  Batch batch;
  batch.texts["caption"] = text_input(at::randint(20, {2, 6}, at::kLong), length_mask({3, 0}, 6));
  batch.texts[kPhrases] = text_input(at::randint(20, {2, 3, 6}, at::kLong), at::stack({length_mask({3, 0, 1}, 6), length_mask({0, 0, 2}, 6)}));
  const ViewNeeds ids{.student = false, .input_ids = true};
  const Features features = model.forward(batch, {.images = {}, .texts = {{"caption", ids}, {kPhrases, ids}, {"other", {.student = false}}}});
  EXPECT_FALSE(features.texts.contains("other")) << "only the teacher needs it";
  for (const char* view : {"caption", kPhrases}) {
    const TowerFeatures& text = features.text(view);
    EXPECT_FALSE(text.global.defined());
    EXPECT_TRUE(at::equal(text.input.ids, batch.texts.at(view).ids) && at::equal(text.input.mask, batch.texts.at(view).mask));
    EXPECT_TRUE(at::equal(text.present, text.input.mask.any(-1)));
  }
}

TEST(Views, ExtrasAreRowsOfTheirView) {
  DualEncoder model(small_clip());
  const TowerExtra mean{[](const TowerInput& input, const Encoded& encoded) {
    return encoded.tokens.mean({1, 2}) + (input.pixels.defined() ? input.pixels.mean({1, 2, 3}) : input.ids.sum(1));
  }};
  const ViewNeeds with_mean{.extras = {{"mean", mean}}};
  Batch batch;
  for (const char* view : {"image", "second"}) batch.images[view] = image_input(random_pixels(2));
  batch.texts[kCaptions] = text_input(at::randint(20, {2, 3, 6}, at::kLong));
  Needs needs{.images = {{"image", with_mean}, {"second", with_mean}}, .texts = {{kCaptions, with_mean}}};
  const Features features = model.forward(batch, needs);
  EXPECT_TRUE(at::allclose(features.image("second").extras.at("mean"),
                           model.encode_image(batch.images.at("second"), with_mean).extras.at("mean")));
  EXPECT_EQ(features.text(kCaptions).extras.at("mean").sizes(), at::IntArrayRef({2, 3}));
  const Features again = joined({features, features});
  EXPECT_EQ(again.image().extras.at("mean").sizes(), at::IntArrayRef({4}));
  needs.images["image"] = {};
  needs.merge({.images = {{"image", with_mean}}, .texts = {}});
  EXPECT_TRUE(needs.images.at("image").extras.contains("mean"));
}

TEST(OptionalViews, MissingImageHasNoRealToken) {
  DualEncoder model(small_sparc());
  TowerInput images = image_input(random_pixels(2));
  images.mask = length_mask({1, 0}, 1);
  const TowerFeatures f = model.encode_image(images, {.tokens = true, .dense = true, .encoder_tokens = true, .optional = true});
  EXPECT_TRUE(at::equal(f.present, images.mask.squeeze(1)));
  EXPECT_TRUE(at::equal(f.mask, f.present.unsqueeze(1).expand({2, 4})));
  for (const at::Tensor& tokens : {f.tokens, f.dense, f.encoder_tokens}) {
    EXPECT_EQ(tokens[1].abs().max().item<float>(), 0);
    EXPECT_GT(tokens[0].abs().min().item<float>(), 0);
  }
  EXPECT_FALSE(model.encode_image(images, {.tokens = true}).mask.defined()) << "all samples have this view";
}

/// Two equal models in training, in which batch norms follow the image encoder and the projections.
class BatchNorms : public testing::Test {
 protected:
  static ModelSettings model_settings() {
    ModelSettings s = small_clip();
    s.image = {{"timm_resnet", settings("{block: basic, layers: [1, 1, 1, 1], image_size: 32}")}, {"gap"}, {"mlp", settings("{embed_dim: 6, inner_dim: 5}")}};
    s.text->projection = {"mlp", settings("{embed_dim: 6, inner_dim: 5}")};
    s.preprocessing.image_size = 32;
    return s;
  }
  static DualEncoder same_model() {
    at::manual_seed(4);
    DualEncoder model(model_settings());
    model.to(at::kDouble);
    return model;
  }
  /// Checks that rows of both models' features, their running statistics and the gradients of the rows are equal.
  void expect_same(const at::Tensor& rows, const at::Tensor& other_rows) {
    expect_close(rows, other_rows, 1e-7);
    rows.sin().sum().backward();
    other_rows.sin().sum().backward();
    const auto buffers = one_.buffers(), others = other_.buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i) expect_close(buffers[i], others[i], 1e-7);
    const auto parameters = one_.parameters(), of_other = other_.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (of_other[i].grad().defined()) expect_close(parameters[i].grad(), of_other[i].grad(), 1e-7);
    }
  }
  DualEncoder one_ = same_model(), other_ = same_model();
};

TEST_F(BatchNorms, DoNotCountTextsThatAnImageLacks) {
  const at::Tensor mask = at::stack({length_mask({3, 0, 1}, 6), length_mask({0, 4, 2}, 6)}), there = mask.any(2);
  const at::Tensor ids = at::randint(1, 20, {2, 3, 6}, at::kLong);
  const auto encoded = [](DualEncoder& model, const std::string& view, const at::Tensor& words, const at::Tensor& real) {
    Batch batch;
    batch.texts[view] = text_input(words, real);
    return model.forward(batch, {.images = {}, .texts = {{view, {}}}}).text(view).global;
  };
  expect_same(encoded(one_, kCaptions, ids, mask).index({there}), encoded(other_, "caption", ids.index({there}), mask.index({there})));
}

TEST_F(BatchNorms, DoNotCountMissingImages) {
  const at::Tensor images = random_images(4, 32), there = at::tensor({1, 0, 1, 1}).to(at::kBool);
  TowerInput view = image_input(images);
  view.mask = there.unsqueeze(1);
  const TowerFeatures some = one_.encode_image(view, {.dense = true, .optional = true}), all = other_.encode_image(image_input(images.index({there})), {.dense = true});
  expect_same(at::cat({some.global.unsqueeze(1), some.dense}, 1).index({there}), at::cat({all.global.unsqueeze(1), all.dense}, 1));
}

TEST_F(BatchNorms, DoNotCountPaddingOfTokens) {
  const at::Tensor ids = at::randint(1, 20, {3, 8}, at::kLong), mask = length_mask({5, 2, 6}, 8);
  const auto words = [](DualEncoder& model, const at::Tensor& of, const at::Tensor& real) {
    return model.encode_text(text_input(of, real), {.dense = true}).dense;
  };
  expect_same(words(one_, ids, mask).slice(1, 0, 6), words(other_, ids.slice(1, 0, 6), mask.slice(1, 0, 6)));
}

TEST(BatchNorm, NeverReadsRowsThatAreNotReal) {
  const at::Tensor real = length_mask({2, 0, 3}, 3), x = at::randn({3, 3, 4}, at::kDouble);
  torch::nn::BatchNorm1d norm(4), other(4);
  norm->to(at::kDouble);
  other->to(at::kDouble);
  const at::Tensor padded = x.masked_fill(~real.unsqueeze(2), NAN).requires_grad_(), rows = x.index({real}).requires_grad_();
  const at::Tensor expected = other(rows);
  const RealRows scope(real);
  const at::Tensor out = batch_norm(norm, padded).index({real});
  expect_close(out, expected, 1e-12);
  out.sin().sum().backward();
  expected.sin().sum().backward();
  expect_close(padded.grad().index({real}), rows.grad(), 1e-12);
  expect_close(padded.grad().index({~real}), at::zeros({4, 4}, at::kDouble), 0);
  expect_close(norm->weight.grad(), other->weight.grad(), 1e-12);
  expect_close(norm->running_var, other->running_var, 1e-7);
}

TEST_F(BatchNorms, StayUnchangedIfTheWholeBatchLacksAView) {
  TowerInput view = image_input(random_images(2, 32));
  view.mask = at::zeros({2, 1}, at::kBool);
  EXPECT_TRUE(one_.encode_image(view, {.optional = true}).global.isfinite().all().item<bool>());
  for (const auto& buffer : one_.named_buffers()) {
    if (buffer.key().ends_with("running_var")) {
      EXPECT_TRUE(at::equal(buffer.value(), at::ones_like(buffer.value()))) << buffer.key();
    }
  }
}

TEST(ViewsOfSeveralTexts, ReportWhichTextsArePresent) {
  DualEncoder model(small_clip());
  const at::Tensor ids = at::randint(1, 20, {2, 3, 6}, at::kLong);
  const at::Tensor there = at::tensor({1, 0, 1, 0, 0, 1}).to(at::kBool).view({2, 3});
  Batch batch;
  batch.texts[kPhrases] = text_input(ids, there.unsqueeze(2).expand({2, 3, 6}));
  batch.texts[kNegatives] = text_input(ids, at::ones({2, 3, 6}, at::kBool));
  const Features features = model.forward(batch, {.images = {}, .texts = {{kPhrases, {}}, {kNegatives, {}}}});
  EXPECT_TRUE(at::equal(features.text(kPhrases).present, there));
  EXPECT_TRUE(features.text(kNegatives).present.all().item<bool>());
  EXPECT_EQ(features.text(kNegatives).global.sizes().slice(0, 2), (at::IntArrayRef{2, 3}));
}

// ---- several views of a modality

/// An encoder that records the batch size of each call.
template <class Base, class Settings>
class Recording : public Base {
 public:
  using Base::Base;
  Encoded encode(const TowerInput& input) override {
    batches.push_back(input.values().size(0));
    return Base::encode(input);
  }
  static void add(const std::string& name) {
    if (encoders().contains(name)) return;
    encoders().add<Settings>(name, "of this test", [](const Settings& s) { return std::make_shared<Recording>(s); });
  }
  static inline std::vector<std::int64_t> batches;
};
using RecordingVit = Recording<Vit, VitSettings>;
using RecordingText = Recording<TextTransformer, TextTransformerSettings>;
using RecordingResnet = Recording<ModifiedResnet, ModifiedResnetSettings>;

struct Passes {
  Features together, apart;
  std::vector<std::int64_t> batches_together, batches_apart;
};

/// Encodes all image views in one forward pass, and then each view in a separate pass, with the same row keys.
template <class Recorder>
Passes encode_both_ways(DualEncoder& model, const std::map<std::string, at::Tensor>& views) {
  const at::Tensor keys = row_keys(7, 0, 1, views.begin()->second.size(0));
  Batch batch;
  Needs needs{.images = {}, .texts = {}};
  for (const auto& [name, pixels] : views) {
    batch.images[name] = image_input(pixels);
    needs.images[name].tokens = true;
  }
  Passes out;
  Recorder::batches.clear();
  {
    const RowRngScope rows(keys);
    out.together = model.forward(batch, needs);
  }
  out.batches_together = std::exchange(Recorder::batches, {});
  for (const auto& [name, need] : needs.images) {
    const RowRngScope rows(keys);
    out.apart.images[name] = model.forward(batch, {.images = {{name, need}}, .texts = {}}).image(name);
  }
  out.batches_apart = Recorder::batches;
  return out;
}

at::Tensor loss_of(const Features& features) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  double weight = 1;
  for (const auto& [name, view] : features.images)
    sum = sum + (weight++) * (view.global.square().sum() + view.tokens.sin().sum());
  return sum;
}

TEST(Views, OfOneSizeShareAPassAndMatchSeparatePasses) {
  RecordingVit::add("recording_vit");
  ModelSettings s = small_clip();
  s.image.encoder = {"recording_vit",
                     settings("{patch_size: 4, width: 12, layers: 3, heads: 3, patch_dropout: 0.5, drop_path: 0.4}")};
  at::manual_seed(1);
  DualEncoder model(s);
  model.to(at::kDouble);
  model.train();
  const Passes passes = encode_both_ways<RecordingVit>(
      model, {{"global", random_images(3)}, {"local", random_images(3, 8)}, {"other", random_images(3)}});
  EXPECT_EQ(passes.batches_together, (std::vector<std::int64_t>{6, 3}));
  EXPECT_EQ(passes.batches_apart, (std::vector<std::int64_t>{3, 3, 3}));
  for (const auto& [name, view] : passes.apart.images) {
    expect_close(passes.together.image(name).global, view.global, 1e-12);
    expect_close(passes.together.image(name).tokens, view.tokens, 1e-12);
  }
  std::vector<at::Tensor> parameters = model.image_tower().parameters();
  const auto together = torch::autograd::grad({loss_of(passes.together)}, parameters);
  const auto apart = torch::autograd::grad({loss_of(passes.apart)}, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) expect_close(together[i], apart[i], 1e-9);
}

TEST(Views, OfOneImageDropDifferentPatches) {
  ModelSettings s = small_clip();
  s.image.encoder.settings = settings("{patch_size: 4, width: 12, layers: 1, heads: 3, patch_dropout: 0.5}");
  DualEncoder model(s);
  const TowerInput input = image_input(random_pixels(2));
  Batch batch;
  batch.images = {{"one", input}, {"two", input}};
  const RowRngScope rows(row_keys(3, 0, 1, 2));
  const Features f = model.forward(batch, {.images = {{"one", {}}, {"two", {}}}, .texts = {}});
  EXPECT_GT((f.image("one").global - f.image("two").global).abs().max().item<float>(), 1e-4);
}

TEST(Views, UseSeparatePassesIfBatchNormMixesRows) {
  RecordingResnet::add("recording_resnet");
  ModelSettings s = small_clip();
  s.preprocessing.image_size = 64;
  s.image = {{"recording_resnet", settings("{layers: [1, 1, 1, 1], width: 2}")},
             {"attention_pool_2d", settings("{heads: 4, output_dim: 6}")},
             {"none"}};
  DualEncoder model(s);
  model.to(at::kDouble);
  const std::map<std::string, at::Tensor> views = {{"one", random_images(2, 64)}, {"two", random_images(2, 64)}};
  model.train();
  EXPECT_TRUE(mixes_rows(model.image_tower()));
  const Passes training = encode_both_ways<RecordingResnet>(model, views);
  EXPECT_EQ(training.batches_together, (std::vector<std::int64_t>{2, 2}));
  expect_close(training.together.image("two").global, training.apart.image("two").global, 1e-12);
  model.eval();
  const Passes evaluation = encode_both_ways<RecordingResnet>(model, views);
  EXPECT_EQ(evaluation.batches_together, (std::vector<std::int64_t>{4}));
  expect_close(evaluation.together.image("two").global, evaluation.apart.image("two").global, 1e-12);
}

TEST(Views, MaskOfOneViewDoesNotAffectAnother) {
  DualEncoder model(small_sparc());
  const at::Tensor ids = at::randint(20, {2, 8}, at::kLong), mask = length_mask({3, 5}, 8);
  Batch batch;
  batch.texts = {{"caption", text_input(ids, mask)}, {"summary", text_input(ids)}};
  const Features f = model.forward(batch, {.images = {}, .texts = {{"caption", {}}, {"summary", {}}}});
  expect_close(f.text("caption").global, model.encode_text(text_input(ids, mask)).global);
  expect_close(f.text("summary").global, model.encode_text(text_input(ids)).global);
}

/// A text encoder that records the text lengths that it receives.
class ToldLengths : public TextTransformer {
 public:
  using TextTransformer::TextTransformer;
  Encoded encode(const TowerInput& input) override {
    told = input.lengths;
    return TextTransformer::encode(input);
  }
  static inline at::Tensor told;
};

TEST(Views, PassTheLengthsOfAllTextsTogether) {
  if (!encoders().contains("told_lengths"))
    encoders().add<TextTransformerSettings>("told_lengths", "of this test", [](const TextTransformerSettings& s) {
      return std::make_shared<ToldLengths>(s);
    });
  ModelSettings s = small_clip();
  s.text->encoder.name = "told_lengths";
  DualEncoder model(s);
  Batch batch;
  batch.texts["a"] = text_input(at::randint(20, {2, 8}, at::kLong), length_mask({3, 5}, 8));
  batch.texts["b"] = text_input(at::randint(20, {2, 8}, at::kLong));
  batch.texts["a"].lengths = at::tensor({3, 5}, at::kLong);
  const Needs both{.images = {}, .texts = {{"a", {}}, {"b", {}}}};
  model.forward(batch, both);
  ASSERT_TRUE(ToldLengths::told.defined());
  EXPECT_TRUE(at::equal(ToldLengths::told, at::tensor({3, 5, 8, 8}, at::kLong))) << "without a mask all tokens are real";
  batch.texts["a"].lengths.reset();
  model.forward(batch, both);
  EXPECT_FALSE(ToldLengths::told.defined()) << "the lengths of one view are unknown";
}

TEST(Views, OptionalTextsSharePassesWithOthers) {
  RecordingText::add("recording_text");
  ModelSettings s = small_clip();
  s.text->encoder.name = "recording_text";
  DualEncoder model(s);
  Batch batch;
  for (const char* view : {"caption", "objects", "summary"})
    batch.texts[view] = text_input(at::randint(20, {2, 8}, at::kLong), length_mask({3, 5}, 8));
  batch.texts["objects"].mask = length_mask({0, 4}, 8);
  const ViewNeeds optional{.optional = true};
  RecordingText::batches.clear();
  const Features f =
      model.forward(batch, {.images = {}, .texts = {{"caption", {}}, {"objects", optional}, {"summary", optional}}});
  EXPECT_EQ(RecordingText::batches, (std::vector<std::int64_t>{6}));
  EXPECT_FALSE(f.text("caption").present.defined()) << "all samples have it";
  EXPECT_TRUE(at::equal(f.text("objects").present, at::tensor({0, 1}).to(at::kBool)));
  EXPECT_TRUE(f.text("summary").present.all().item<bool>());
  for (const auto& [name, view] : batch.texts) expect_close(f.text(name).global, model.encode_text(view).global);
}

TEST(Views, NameAViewThatTheBatchLacks) {
  DualEncoder model(small_clip());
  Batch batch;
  batch.images["image"] = image_input(random_pixels(1));
  const Needs needs{.images = {{"local", {}}}, .texts = {}};
  EXPECT_EQ(error_of<c10::Error>([&] { model.forward(batch, needs); }), "the batch has no view named local");
}

// ---- images of another size

VitSettings bare_vit() {
  VitSettings s;
  s.image_size = 16, s.patch_size = 8, s.width = 6, s.layers = 0, s.heads = 2, s.pre_norm = false;
  s.final_norm = "none";
  return s;
}

TEST(ImageSizes, ResamplePositionsForTheirGrid) {
  Vit vit(bare_vit());
  const auto parameters = vit.named_parameters();
  const at::Tensor positions = parameters["positional_embedding"];
  const at::NoGradGuard no_grad;
  parameters["conv1.weight"].zero_();  // so that tokens consist only of position embeddings
  for (const config::Size grid : {config::Size(3, 1), config::Size(4, 5)}) {
    const auto encode = [&] { return vit.encode(image_input(at::rand({2, 3, grid.height * 8, grid.width * 8}))); };
    const auto expected = [&] { return resize_position_embedding(positions, grid, 2, 1); };
    const Encoded encoded = encode();
    EXPECT_EQ(encoded.grid, grid);
    expect_close(encoded.tokens[1], expected().slice(0, 1), 0);
    expect_close(encoded.class_token[1], parameters["class_embedding"] + positions[0], 0);
    positions.normal_();
    expect_close(encode().tokens[0], expected().slice(0, 1), 0);  // changed weights take effect at once
    positions.data_ptr<float>()[7] += 1;                          // changes a weight without autograd noticing it, as collectives do
    expect_close(encode().tokens[0], expected().slice(0, 1), 0);
  }
}

TEST(ImageSizes, PassTheGradientToThePositions) {
  Vit vit(bare_vit());
  const at::Tensor positions = vit.named_parameters()["positional_embedding"];
  const TowerInput input = image_input(at::rand({2, 3, 24, 8}));
  const at::Tensor weights = at::randn({2, 3, 6});
  {
    const at::NoGradGuard no_grad;  // as in the first pass of GradCache
    vit.encode(input);
  }
  const at::Tensor ours = torch::autograd::grad({(vit.encode(input).tokens * weights).sum()}, {positions})[0];
  const at::Tensor resized = resize_position_embedding(positions, {3, 1}, 2, 1).slice(0, 1);
  expect_close(ours, torch::autograd::grad({(resized * weights.sum(0)).sum()}, {positions})[0]);
}

TEST(ImageSizes, MustBeWholePatches) {
  Vit vit(bare_vit());
  for (const config::Size size : {config::Size(16, 20), config::Size(16, 0)})
    EXPECT_THROW(vit.encode(image_input(at::rand({1, 3, size.height, size.width}))), c10::Error);
}

// ---- regions

/// Returns a model whose image tower takes region features. `kind` is "none" for a ViT without a class token, and "resnet" for a ResNet
/// with attention pooling. Any other kind means a ViT with a class token, and names its region class token: "learned", "shared" or "mean".
ModelSettings region_model(const std::string& kind) {
  ModelSettings s = kind == "none" ? small_sparc() : small_clip();
  if (kind == "resnet") {
    s.image = {{"modified_resnet",
                settings("{layers: [1, 1, 1, 1], width: 2, image_size: 32, regions: {width: 5, class_token: mean}}")},
               {"attention_pool_2d", settings("{heads: 2, output_dim: 6}")},
               {"none"}};
    s.preprocessing.image_size = 32;
  } else {
    const std::string class_token = kind == "none" ? "learned" : kind;
    s.image.encoder.settings.set("regions",
                                 settings("{width: 5, first_block: 1, bias: true, class_token: " + class_token + "}"));
  }
  return s;
}

TowerInput region_input(at::Tensor regions, at::Tensor mask) {
  TowerInput out;
  out.regions = std::move(regions);
  out.mask = std::move(mask);
  return out;
}

class Regions : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(ClassToken, Regions, testing::Values("learned", "shared", "mean", "none", "resnet"),
                         [](const auto& kind) { return kind.param; });

TEST_P(Regions, IgnorePadding) {
  at::manual_seed(2);
  DualEncoder model(region_model(GetParam()));
  const at::Tensor regions = at::randn({3, 2, 5}), mask = length_mask({2, 1, 0}, 2);
  const at::Tensor junk = at::full({3, 2, 5}, std::numeric_limits<float>::quiet_NaN());
  const at::Tensor padded = at::cat({at::where(mask.unsqueeze(2), regions, junk), junk}, 1).set_requires_grad(true);
  const TowerInput longer = region_input(padded, at::cat({mask, at::zeros_like(mask)}, 1));
  const TowerFeatures with = model.encode_image(longer, {.tokens = true, .optional = true});
  const TowerFeatures without = model.encode_image(region_input(regions, mask), {.tokens = true, .optional = true});
  expect_close(with.global, without.global);
  expect_close(with.tokens.slice(1, 0, 2), without.tokens);
  EXPECT_EQ(with.tokens.slice(1, 2).abs().max().item<float>(), 0);
  EXPECT_TRUE(at::equal(with.mask, longer.mask));
  EXPECT_TRUE(at::equal(with.present, mask.any(1)));
  EXPECT_TRUE(with.global.isfinite().all().item<bool>()) << "also for the row without regions";
  (with.global.square().sum() + with.tokens.sin().sum()).backward();
  EXPECT_TRUE(padded.grad().isfinite().all().item<bool>());
  EXPECT_EQ(padded.grad().masked_select(longer.mask.logical_not().unsqueeze(2)).abs().max().item<float>(), 0);
  for (const auto& item : model.named_parameters()) {
    if (!item.value().grad().defined()) continue;
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
  }
}

TEST_P(Regions, AreOnlyPaddingIfNoSampleHasAny) {
  DualEncoder model(region_model(GetParam()));
  const at::Tensor mask = at::zeros({2, 1}, at::kBool);
  const ViewNeeds needs{.tokens = true, .optional = true};
  const TowerFeatures none = model.encode_image(region_input(at::zeros({2, 1, 0}), mask), needs);
  const TowerFeatures padding = model.encode_image(region_input(at::randn({2, 1, 5}), mask), needs);
  EXPECT_TRUE(none.global.isfinite().all().item<bool>());
  expect_close(none.global, padding.global);
  expect_close(none.tokens, padding.tokens);
  EXPECT_FALSE(none.present.any().item<bool>());
}

TEST(Regions, AreRejectedByAnEncoderWithoutRegions) {
  Vit vit(bare_vit());
  EXPECT_THROW(vit.encode(region_input(at::zeros({1, 1, 5}), {})), c10::Error);
  EXPECT_EQ(vit.region_width(), 0);
}

}  // namespace
}  // namespace tessera
