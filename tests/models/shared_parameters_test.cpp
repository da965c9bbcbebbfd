#include "tests/models/small_models.h"
#include <tessera/models/registry.h>

namespace tessera {
namespace {

/// A read-out whose output is the product of the mean token with each row of the text tower's token table.
class VocabularyHead : public ReadOut {
 public:
  explicit VocabularyHead(const ReadOutContext& context) : table_(context.shared->token_embedding) {
    if (!table_.defined()) user_error(context.path, ": vocabulary_head needs a text tower");
  }
  ReadOutOutput forward(const Encoded& encoded, const ViewNeeds&) override {
    return {at::matmul(encoded.tokens.mean(1), table_.t()), {}, {}};
  }
  std::int64_t output_width() const override { return table_.size(0); }

 private:
  at::Tensor table_;
};

class SharedBetweenTowers : public testing::Test {
 protected:
  void SetUp() override {
    if (readouts().contains("vocabulary_head")) return;
    readouts().add<config::NoSettings>("vocabulary_head", "of this test",
                                       [](const config::NoSettings&, const ReadOutContext& context) {
                                         return std::make_shared<VocabularyHead>(context);
                                       });
  }
  /// Returns a model with two towers of width 8 that both use this read-out.
  static ModelSettings model(const char* readout) {
    ModelSettings s = small_clip();
    s.image.encoder.settings = settings("{patch_size: 8, width: 8, layers: 1, heads: 2}");
    s.image.readout = s.text->readout = {readout};
    s.image.projection = s.text->projection = {"none"};
    return s;
  }
  /// Returns how often the tensor is among the model's parameters.
  static std::int64_t times(const DualEncoder& model, const at::Tensor& tensor) {
    std::int64_t count = 0;
    for (const at::Tensor& parameter : model.parameters()) count += parameter.is_same(tensor) ? 1 : 0;
    return count;
  }
  static std::vector<std::string> names_with(const DualEncoder& model, const std::string& part) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : model.state_dict())
      if (name.find(part) != std::string::npos) names.push_back(name);
    return names;
  }
};

TEST_F(SharedBetweenTowers, TokenTableIsStoredAndOptimizedOnce) {
  DualEncoder model(SharedBetweenTowers::model("vocabulary_head"));
  EXPECT_EQ(model.embed_dim(), 20);
  const at::Tensor table = model.state_dict().at("token_embedding.weight");
  EXPECT_TRUE(table.is_same(model.shared().token_embedding));
  EXPECT_EQ(times(model, table), 1);
  EXPECT_TRUE(names_with(model, "readout").empty());
}

TEST_F(SharedBetweenTowers, TokenTableStaysSharedThroughTypesUpdatesAndLoading) {
  DualEncoder model(SharedBetweenTowers::model("vocabulary_head")), other(model.settings());
  model.to(at::kDouble);
  const at::Tensor table = model.state_dict().at("token_embedding.weight");
  EXPECT_TRUE(table.is_same(model.shared().token_embedding));
  EXPECT_EQ(table.scalar_type(), at::kDouble);
  const at::Tensor image = at::randn({2, 3, 16, 16}, at::kDouble);
  const at::Tensor before = model.encode_image(image).global;
  before.sum().backward();  // no text was encoded, so the gradient comes from the image tower
  EXPECT_GT(table.grad().abs().min().item<double>(), 0);
  {
    const at::NoGradGuard no_grad;
    table.mul_(2);
  }
  expect_close(model.encode_image(image).global, 2 * before, 1e-12);
  other.load_state(model.state_dict(), "a file");
  expect_close(other.encode_image(image.to(at::kFloat)).global, 2 * before.to(at::kFloat), 1e-5);
}

TEST_F(SharedBetweenTowers, RejectsAMissingTable) {
  ModelSettings s = SharedBetweenTowers::model("vocabulary_head");
  s.text.reset();
  EXPECT_EQ(error_of([&] { DualEncoder model(s); }), "model.image.readout: vocabulary_head needs a text tower");
}

}  // namespace
}  // namespace tessera
