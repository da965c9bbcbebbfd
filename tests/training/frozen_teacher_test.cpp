// Tests the parts of learning from teachers and of stored vectors that need no data: towers, features and model files.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/run/teacher.h"
#include "tests/support/error_of.h"
#include <tessera/models/model_file.h>

namespace tessera {
namespace {

constexpr const char* kTowers = R"(
preprocessing: {image_size: 16}
image:
  encoder: {name: vit, patch_size: 8, width: 16, layers: 1, heads: 2}
  readout: {name: cls}
  projection: {name: linear, embed_dim: 8}
text:
  encoder: {name: text_transformer, width: 16, layers: 1, heads: 2, attention: bidirectional, vocab_size: 20, context_length: 6}
  readout: {name: gap}
  projection: {name: linear, embed_dim: 8}
)";

std::shared_ptr<DualEncoder> towers(const std::string& yaml = kTowers) {
  at::manual_seed(2);
  return std::make_shared<DualEncoder>(config::read<ModelSettings>(config::parse_yaml(yaml, "towers"), "model"));
}

Batch batch_of(std::int64_t images, std::int64_t captions) {
  at::manual_seed(3);
  Batch out;
  out.images["image"] = image_input(at::randint(256, {images, 3, 16, 16}, at::kByte));
  const at::Tensor ids = at::randint(20, {images, captions, 6}, at::kLong);
  at::Tensor mask = at::ones({images, captions, 6}, at::kBool);
  mask[0][captions - 1].fill_(false);
  out.texts["captions"] = text_input(ids, mask);
  out.keys.resize(static_cast<std::size_t>(images));
  return out;
}

const Needs kCaptionsOfImages = {.images = {{"image", {}}}, .texts = {{"captions", {}}}};

TEST(StoredVectors, GiveTheEmbeddingsOfTheTowersThatMadeThem) {
  const auto model = towers();
  const Batch live = batch_of(3, 2);
  Batch stored = live;
  const at::Tensor ids = live.texts.at("captions").ids.flatten(0, 1), mask = live.texts.at("captions").mask.flatten(0, 1);
  stored.texts["captions"].encoded.pooled = model->text_tower().pooled(text_input(ids, mask)).detach().view({3, 2, 16});
  const Features whole = model->forward(live, kCaptionsOfImages), from_vectors = model->forward(stored, kCaptionsOfImages);
  const at::Tensor present = whole.text("captions").present.unsqueeze(2);
  EXPECT_TRUE(at::equal(from_vectors.text("captions").present.unsqueeze(2), present));
  EXPECT_TRUE(at::allclose(whole.text("captions").global * present, from_vectors.text("captions").global * present, 1e-5, 1e-6));
  from_vectors.text("captions").global.sum().backward();
  for (const auto& item : model->text_tower().encoder().named_parameters()) EXPECT_FALSE(item.value().grad().defined()) << item.key();
  for (const auto& item : model->text_tower().projection().named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
  const Batch part = slice(stored, 1, 2);
  EXPECT_TRUE(at::allclose(model->forward(part, kCaptionsOfImages).text("captions").global,
                           from_vectors.text("captions").global.narrow(0, 1, 2), 1e-5, 1e-6));
}

TEST(StoredVectors, AreAllThatTheirEncodersAccept) {
  const auto model = towers(R"(
preprocessing: {image_size: 16}
image: {encoder: {name: stored_images, width: 5}, readout: {name: cls}, projection: {name: linear, embed_dim: 8}}
text: {encoder: {name: stored_texts, width: 7}, readout: {name: cls}, projection: {name: linear, embed_dim: 8}}
)");
  Batch batch = batch_of(2, 3);
  EXPECT_EQ(error_of([&] { model->forward(batch, kCaptionsOfImages); }),
            "model.image.encoder: stored_images stands for stored vectors and cannot encode an image: set data.features, or name the encoder "
            "itself");
  batch.images["image"] = {};
  batch.images["image"].encoded.pooled = at::randn({2, 5}).to(at::kBFloat16);
  batch.texts["captions"].encoded.pooled = at::randn({2, 3, 7});
  const Features features = model->forward(batch, kCaptionsOfImages);
  EXPECT_EQ(features.image().global.sizes(), (at::IntArrayRef{2, 8}));
  EXPECT_EQ(features.text("captions").global.sizes(), (at::IntArrayRef{2, 3, 8}));
  EXPECT_EQ(error_of([] { towers("{image: {encoder: {name: stored_images}}}"); }).substr(0, 60),
            std::string("towers:1: model.image.encoder.width: is not set: give the number of").substr(0, 60));
}

TEST(FrozenTeacher, EncodesInEvaluationModeWithoutGradientAndKeepsStoredEmbeddingsOfOtherViews) {
  const Teacher teacher = frozen_teacher(towers(), 20.0);
  EXPECT_TRUE(teacher.frozen());
  EXPECT_FALSE(teacher.model->is_training());
  EXPECT_TRUE(teacher.ema.averages().empty());
  Batch batch = batch_of(2, 2);
  batch.texts["captions"].taught = at::randn({2, 2, 3});
  Needs needs = kCaptionsOfImages;
  needs.images["image"].teacher = true;
  needs.texts["captions"].taught = 3;
  const auto student = towers();
  Features features = student->forward(batch, needs);
  EXPECT_TRUE(at::equal(features.teacher_text("captions").global, batch.texts["captions"].taught));
  add_teacher_features(teacher, batch, needs, features);
  EXPECT_FALSE(features.teacher_image().global.requires_grad());
  EXPECT_TRUE(at::equal(features.teacher_image().global, features.image().global.detach())) << "the weights are the same";
  EXPECT_TRUE(at::equal(features.teacher_text("captions").global, batch.texts["captions"].taught));
}

TEST(NestedWidths, AreNumbersInTheMetadata) {
  ModelFile file;
  EXPECT_TRUE(nested_widths(file, "a").empty());
  file.extra[kNestedWidths] = "64 128";
  EXPECT_EQ(nested_widths(file, "a"), (std::vector<std::int64_t>{64, 128}));
  for (const char* wrong : {"64 x", "0", "12.5", ""}) {
    file.extra[kNestedWidths] = wrong;
    EXPECT_EQ(error_of([&] { nested_widths(file, "a"); }),
              std::string("a: the metadata nested_widths is ") + wrong + ", expected numbers such as 64 128");
  }
}

}  // namespace
}  // namespace tessera
