#include <cmath>

#include "src/measure/step_meter.h"
#include "src/models/token_projection.h"
#include "tests/models/small_models.h"

namespace tessera {
namespace {

/// Returns a small model like STAIR's for images of 16 x 16 pixels: a vocabulary of 20 tokens, a text tower of width 8, and an
/// image tower of width 12 with a class token.
ModelSettings small_stair() {
  ModelSettings s = small_clip();
  s.image.readout = s.text->readout = {"token_projection"};
  s.image.projection = s.text->projection = {"none"};
  return s;
}

TokenProjection& head_of(Tower& tower) {
  return dynamic_cast<TokenProjection&>(tower.readout());
}

TEST(TokenProjection, HeadsShareTheTokenTableWhichIsSavedAndCountedOnce) {
  DualEncoder model(small_stair()), clip(small_clip());
  std::vector<std::string> tables;
  std::int64_t saved = 0;
  for (const auto& [name, tensor] : model.state_dict()) {
    if (tensor.sizes() == at::IntArrayRef({20, 8})) tables.push_back(name);
    if (tensor.requires_grad()) saved += tensor.numel();
  }
  EXPECT_EQ(tables, std::vector<std::string>{"token_embedding.weight"});
  const auto head = [](std::int64_t width) { return (width + 1) * 8 + 2 * 8 + 20; };  // weights of dense layer, norm and bias
  const std::int64_t projections = 12 * 6 + 8 * 6;
  EXPECT_EQ(numbers_in(model), numbers_in(clip) - projections + head(12) + head(8));
  EXPECT_EQ(saved, numbers_in(model));
  for (const char* name : {"readout.bias", "readout.transform.dense.weight", "visual.readout.bias",
                           "visual.readout.transform.dense.weight", "visual.readout.transform.norm.bias"})
    EXPECT_TRUE(model.state_dict().contains(name)) << name;
  EXPECT_EQ(model.embed_dim(), 20);
}

TEST(TokenProjection, ImagesAndTextsBothTrainTheTable) {
  DualEncoder model(small_stair());
  const at::Tensor table = model.state_dict().at("token_embedding.weight");
  model.encode_image(random_pixels(3)).global.sum().backward();
  const at::Tensor by_image = table.grad().clone();
  EXPECT_GT(by_image.abs().sum().item<float>(), 0);
  const at::Tensor ids = at::randint(20, {3, 8}, at::kLong);
  model.encode_text(text_input(ids)).global.sum().backward();
  EXPECT_GT((table.grad() - by_image).abs().sum().item<float>(), 0);
}

TEST(TokenProjection, EncodingsAreTheMaximumOverPatches) {
  at::manual_seed(3);
  DualEncoder model(small_stair());
  model.to(at::kDouble);
  const at::Tensor image = at::randn({2, 3, 16, 16}, at::kDouble);
  Tower& tower = model.image_tower();
  const Encoded encoded = tower.encoder().encode(image_input(image));
  ASSERT_TRUE(encoded.class_token.defined());
  const at::Tensor activations = head_of(tower).activations(encoded.tokens, at::arange(20));  // [2, 4, 20], without the class token
  expect_close(model.encode_image(image).global, activations.amax(1).relu().log1p(), 1e-12);
}

TEST(TokenProjection, ActivationsOfChosenIdsReadOnlyTheirRows) {
  at::manual_seed(3);
  DualEncoder model(small_stair());
  TokenProjection& head = head_of(model.image_tower());
  const at::Tensor tokens = at::randn({2, 4, 12}), ids = at::tensor({7, 2, 7}, at::kLong);
  const at::Tensor before = head.activations(tokens, ids);
  EXPECT_EQ(before.sizes(), at::IntArrayRef({2, 4, 3}));
  EXPECT_TRUE(at::equal(before.select(2, 0), before.select(2, 2)));
  {
    const at::NoGradGuard no_grad;
    at::Tensor table = model.shared().token_embedding;
    for (std::int64_t id = 0; id < 20; ++id)
      if (id != 7 && id != 2) table[id].fill_(std::nan(""));
  }
  EXPECT_TRUE(at::equal(head.activations(tokens, ids), before));
}

TEST(TokenProjection, ReadsResidualNetworks) {
  ModelSettings s = small_stair();
  s.image.encoder = {"modified_resnet", settings("{layers: [1, 1, 1, 1], width: 4}")};
  s.preprocessing.image_size = 64;
  DualEncoder model(s);
  const at::Tensor encoding = model.encode_image(random_pixels(2, 64)).global;
  EXPECT_EQ(encoding.sizes(), at::IntArrayRef({2, 20}));
  EXPECT_TRUE(encoding.ge(0).all().item<bool>());
}

TEST(TokenProjection, RejectsAModelWithoutATokenTable) {
  ModelSettings s = small_stair();
  s.text.reset();
  EXPECT_EQ(error_of([&] { DualEncoder model(s); }),
            "model.image.readout: token_projection scores the token table of the text tower, but this model has none: "
            "give model.text an encoder with such a table (text_transformer)");
}

TEST(TokenProjection, FlopsCountTheTransformAndTheTable) {
  DualEncoder model(small_stair());
  const at::NoGradGuard no_grad;
  const Encoded encoded = model.image_tower().encoder().encode(image_input(at::zeros({1, 3, 16, 16})));
  const FlopCounter counter;
  head_of(model.image_tower()).forward(encoded, {});
  EXPECT_EQ(counter.flops(), 2 * 4 * (12 * 8 + 8 * 20));
}

}  // namespace
}  // namespace tessera
