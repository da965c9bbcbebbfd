#include "src/models/batch_norm.h"
#include "src/foreign/timm.h"
#include "src/models/vit.h"
#include "tests/models/timm_cases.h"

namespace tessera {
namespace {

/// Loads the tensors of a small timm model into our encoder. Uses the renaming rules of the published timm model `name`, which has the
/// same kinds of layers.
std::shared_ptr<Encoder> vit_of_timm(const std::string& name, const std::string& yaml, const std::map<std::string, at::Tensor>& theirs) {
  const auto vit = encoder_of("vit", yaml);
  const TimmTower row = timm_tower(name, {nlohmann::json::object(), "arguments"}, {}, "table");
  const RenamedTensors renamed = read_by_rules(row.rules, theirs, state_of(*vit), name);
  EXPECT_TRUE(renamed.left_over.empty()) << renamed.left_over.front();
  load_exactly(*vit, renamed.tensors);
  return vit;
}

TEST(VitOfTimm, ViTaminMatchesTimm) {
  const at::NoGradGuard no_grad;
  const auto want = timm_case("vitamin");
  const auto vit = vit_of_timm("vitamin_small_224",
                               "{image_size: 32, patch_size: 16, stem: vitamin, stem_widths: [8, 16], width: 16, layers: 1, heads: 2, "
                               "mlp: gated, mlp_ratio: 2, mlp_input_norm: true, class_token: false, pre_norm: false, norm_eps: 1e-6, "
                               "final_norm: pooled}",
                               below(want, "model."));
  expect_close(vit->final_norm(encode(*vit, want.at("pixels")).tokens.mean(1)), want.at("pooled"), 1e-5);
  vit->train();
  EXPECT_FALSE(mixes_rows(*vit)) << "its stem has no batch norm";
}

TEST(VitOfTimm, NormsAfterAttentionAndMlpMatchTimm) {
  const at::NoGradGuard no_grad;
  const auto want = timm_case("eva_norms_on_updates");
  const auto vit = vit_of_timm("eva02_enormous_patch14_clip_224",
                               "{image_size: 16, patch_size: 8, width: 16, layers: 2, heads: 2, mlp_ratio: 3, block_norm: on_updates, "
                               "patch_bias: true, pre_norm: false, norm_eps: 1e-6, qkv_bias: no_key}",
                               below(want, "model."));
  expect_close(encode(*vit, want.at("pixels")).class_token, want.at("pooled"), 1e-5);
  EXPECT_NE(error_of([&] { vit->encode_with(LastBlock::maskclip, image_input(want.at("pixels"))); }).find("block_norm: before"), std::string::npos);
}

TEST(VitOfTimm, LeavesOutPartialPatchesIfTheSettingsSaySo) {
  const at::NoGradGuard no_grad;
  const std::string yaml = "{image_size: 20, patch_size: 8, width: 16, layers: 1, heads: 2, partial_patches: ";
  EXPECT_NE(settings_error("vit", yaml + "false}").find("is not a multiple of patch_size"), std::string::npos);
  const auto vit = encoder_of("vit", yaml + "true}");
  const at::Tensor pixels = at::randn({2, 3, 20, 20});
  const Encoded whole = encode(*vit, pixels);
  EXPECT_EQ(whole.grid, config::Size(2));
  expect_close(whole.tokens, encode(*vit, pixels.slice(2, 0, 16).slice(3, 0, 16)).tokens, 1e-6);
}

TEST(VitOfTimm, MlpOfOpenClipAfterATimmTowerIsAProjection) {
  TimmHead head;
  head.mlp = 12;
  const TimmTower row = timm_tower("convnext_atto", {nlohmann::json::object(), "arguments"}, head, "table");
  EXPECT_EQ(row.tower.projection.name, "mlp");
  EXPECT_EQ(row.tower.projection.settings.find("inner_dim")->text(), "24");
  EXPECT_EQ(row.tower.projection.settings.find("hidden_bias")->text(), "true");
  EXPECT_EQ(row.tower.projection.settings.find("bias")->text(), "false");
}

}  // namespace
}  // namespace tessera
