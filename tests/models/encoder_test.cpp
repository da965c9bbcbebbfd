#include <ATen/Context.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/attention.h"
#include "src/models/autocast.h"
#include "src/models/text_transformer.h"
#include "src/models/vit.h"
#include "tests/models/small_models.h"
#include "tests/support/gradcheck.h"
#include "tests/support/test_name.h"
#include <tessera/models/registry.h>

namespace tessera {
namespace {

TextTransformerSettings small_text(const std::string& attention) {
  TextTransformerSettings s;
  s.width = 8, s.layers = 2, s.heads = 2, s.context_length = 8, s.vocab_size = 20;
  s.attention = attention == "causal" || attention == "causal_local" ? "causal" : "bidirectional";
  if (attention == "modern") {
    s.norm = "rms", s.position_embedding = "rotary", s.mlp = "gated", s.activation = "silu", s.attention_gate = "biased", s.qk_norm = true;
    s.block_norm = "both", s.qkv_bias = "none", s.pre_norm = true;
  } else if (attention == "local" || attention == "causal_local") {
    s.norm = "layer_no_bias", s.position_embedding = "rotary", s.rotary_pairs = "halves", s.pre_norm = true, s.first_norm = false;
    s.local = LocalAttentionSettings{.blocks = {1}, .window = 2, .rotary_base = 100};
    s.head_width = 6, s.heads = 4, s.key_heads = 2, s.score_scale = 0.3;
  } else if (attention == "relative") {
    s.norm = "rms", s.position_embedding = "relative", s.relative_buckets = 8, s.relative_distance = 6, s.grad_checkpointing = true;
  }
  return s;
}

/// Computes attention over the allowed keys with plain loops. The output of a query without an allowed key is 0.
at::Tensor slow_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t heads,
                          const std::function<bool(std::int64_t, std::int64_t, std::int64_t)>& allowed) {
  const std::int64_t d = q.size(2) / heads;
  at::Tensor out = at::zeros_like(q);
  for (std::int64_t b = 0; b < q.size(0); ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < q.size(1); ++i) {
        at::Tensor sum = at::zeros({d}, q.options());
        double total = 0;
        for (std::int64_t j = 0; j < k.size(1); ++j) {
          if (!allowed(b, i, j)) continue;
          const auto part = [&](const at::Tensor& x, std::int64_t row) {
            return x[b][row].slice(0, h * d, (h + 1) * d);
          };
          const double weight = std::exp(part(q, i).dot(part(k, j)).item<double>() / std::sqrt(static_cast<double>(d)));
          sum += weight * part(v, j);
          total += weight;
        }
        if (total > 0) out[b][i].slice(0, h * d, (h + 1) * d).copy_(sum / total);
      }
  return out;
}

// This test leaves out causal attention, which attention_on_device_test.cpp covers.
TEST(Attention, MatchesPlainLoopsUnderAnyMask) {
  at::manual_seed(0);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor q = at::randn({3, 5, 6}, options), k = at::randn({3, 5, 6}, options),
                   v = at::randn({3, 5, 6}, options);
  at::Tensor mask = at::rand({3, 5}).gt(0.4);
  mask[0].fill_(false);
  mask[1][0].fill_(false);
  const auto real = [&](std::int64_t b, std::int64_t, std::int64_t j) { return mask[b][j].item<bool>(); };
  const at::Tensor expected = slow_attention(q, k, v, 2, real);
  expect_close(attend(q, k, v, 2, attention_mask(mask, 5)), expected, 1e-12);
  const at::Tensor self = attend(q, k, v, 2, self_attention_mask(mask, 5));
  expect_close(zero_padding(self, mask), zero_padding(expected, mask), 1e-12);
  EXPECT_TRUE(self.isfinite().all().item<bool>()) << "zeroing the padding must not hide NaN";
  const auto any = [](std::int64_t, std::int64_t, std::int64_t) { return true; };
  expect_close(attend(q, k, v, 2, attention_mask({}, 5)), slow_attention(q, k, v, 2, any), 1e-12);
}

TEST(Attention, CausalMasksNeedPaddingOnTheRight) {
  at::Tensor mask = length_mask({4, 2}, 4);
  mask[1][0].fill_(false);
  EXPECT_THROW(causal_attention_mask(mask, 4), c10::Error);
}

/// Records the arguments of scaled_dot_product_attention during its lifetime.
struct AttentionCalls {
  struct Call {
    bool causal;
    std::vector<std::int64_t> mask;  // the mask's shape
    bool cudnn;                      // whether cuDNN's kernel may be chosen
  };
  AttentionCalls() {
    calls().clear();
    handle =
        at::addGlobalCallback(at::RecordFunctionCallback(&note).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~AttentionCalls() { at::removeCallback(handle); }
  static std::vector<Call>& calls() {
    static std::vector<Call> all;
    return all;
  }
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    if (function.name() != std::string("aten::scaled_dot_product_attention")) return nullptr;
    const at::IValue &mask = function.inputs()[3], &causal = function.inputs()[5];
    calls().push_back({causal.toBool(), mask.isTensor() ? mask.toTensor().sizes().vec() : std::vector<std::int64_t>{},
                       at::globalContext().userEnabledCuDNNSDP()});
    return nullptr;
  }
  at::CallbackHandle handle;
};

TEST(Attention, CausalTowersPassNoMaskAndOthersASmallMaskWithoutCudnn) {
  const at::Tensor ids = at::randint(20, {3, 8}, at::kLong), mask = length_mask({8, 4, 0}, 8);
  for (const bool causal : {true, false}) {
    TextTransformerSettings settings = small_text(causal ? "causal" : "bidirectional");
    settings.skip_padding = false;
    TextTransformer text(settings);
    const AttentionCalls watch;
    text.encode(text_input(ids, mask));
    ASSERT_FALSE(watch.calls().empty());
    for (const AttentionCalls::Call& call : watch.calls()) {
      EXPECT_EQ(call.causal, causal);
      EXPECT_EQ(call.mask, causal ? std::vector<std::int64_t>{} : (std::vector<std::int64_t>{3, 1, 1, 8}));
      EXPECT_EQ(call.cudnn, causal);
    }
  }
  EXPECT_TRUE(at::globalContext().userEnabledCuDNNSDP());
}

class TextAttention : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TextAttention, testing::Values("causal", "bidirectional", "modern", "local", "causal_local", "relative"),
                         test_name<std::string>);

TEST_P(TextAttention, PaddingChangesNothing) {
  at::manual_seed(1);
  TextTransformer text(small_text(GetParam()));
  const at::Tensor ids = at::randint(20, {3, 5}, at::kLong);
  const at::Tensor longer = at::cat({ids, at::full({3, 3}, 7, at::kLong)}, 1);
  const at::Tensor tokens = text.encode(text_input(longer, length_mask({5, 5, 5}, 8))).tokens;
  expect_close(tokens.slice(1, 0, 5), text.encode(text_input(ids)).tokens);
  EXPECT_EQ(tokens.slice(1, 5).abs().max().item<float>(), 0);
}

TEST_P(TextAttention, IgnoresIdsUnderPadding) {
  at::manual_seed(2);
  TextTransformer text(small_text(GetParam()));
  const at::Tensor mask = length_mask({2, 8, 0}, 8);
  const at::Tensor ids = at::randint(20, {3, 8}, at::kLong);
  const at::Tensor wild = at::where(mask, ids, at::full({}, -123456789, at::kLong));
  EXPECT_TRUE(at::equal(text.encode(text_input(wild, mask)).tokens, text.encode(text_input(ids, mask)).tokens));
}

TEST_P(TextAttention, NanUnderPaddingDoesNotSpread) {
  at::manual_seed(3);
  TextTransformer text(small_text(GetParam()));
  {
    const at::NoGradGuard guard;
    for (auto& item : text.named_parameters())
      if (item.key() == "positional_embedding") item.value().slice(0, 5).fill_(std::numeric_limits<float>::quiet_NaN());
  }
  const at::Tensor tokens = text.encode(text_input(at::randint(20, {2, 8}, at::kLong), length_mask({5, 3}, 8))).tokens;
  EXPECT_TRUE(tokens.isfinite().all().item<bool>());
  tokens.square().sum().backward();
  for (const auto& item : text.named_parameters())
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
}

TEST_P(TextAttention, SkippingPaddingKeepsOutputsAndGradients) {
  const at::Tensor ids = at::randint(20, {4, 8}, at::kLong), mask = length_mask({8, 3, 0, 1}, 8);
  for (const std::string norm : {"tokens", "pooled"}) {
    std::vector<at::Tensor> outputs;
    std::map<std::string, at::Tensor> gradients;
    for (const bool skip : {true, false}) {
      at::manual_seed(5);
      TextTransformerSettings settings = small_text(GetParam());
      settings.final_norm = norm;
      settings.skip_padding = skip;
      TextTransformer text(settings);
      text.to(at::kDouble);
      TowerInput input = text_input(ids, mask);
      if (skip) input.lengths = mask.sum(1);
      outputs.push_back(text.encode(input).tokens);
      outputs.back().sin().sum().backward();
      for (auto& item : text.named_parameters()) {
        if (skip)
          gradients[item.key()] = item.value().grad();
        else if (gradients[item.key()].defined() || item.value().grad().defined())
          expect_close(gradients[item.key()], item.value().grad(), 1e-12);
      }
    }
    expect_close(outputs[0], outputs[1], 1e-12);
  }
}

// Tests in double precision, because single precision would hide small errors of the gradients.
TEST_P(TextAttention, GradientsMatchFiniteDifferences) {
  if (GetParam() == "causal" || GetParam() == "bidirectional") GTEST_SKIP() << "the golden cases hold these gradients";
  at::manual_seed(9);
  TextTransformerSettings settings = small_text(GetParam());
  settings.vocab_size = 3, settings.mlp_ratio = 1;
  TextTransformer text(settings);
  text.to(at::kDouble);
  const at::Tensor ids = at::randint(3, {2, 6}, at::kLong), mask = length_mask({6, 4}, 6), weights = at::randn({2, 6, 8}, at::kDouble);
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : text.parameters()) parameter.add_(0.3 * at::randn_like(parameter));
  }
  std::vector<at::Tensor> leaves;
  for (const auto& item : text.named_parameters())
    if (item.value().dim() < 2 || item.key() == "relative_bias" || item.key() == "token_embedding.weight") leaves.push_back(item.value());
  expect_gradients_match(leaves, [&] { return (text.encode(text_input(ids, mask)).tokens * weights).sum(); }, 1e-5);
}

TEST(TextAttention, OfANearBlockStopsAtItsWindow) {
  at::manual_seed(10);
  TextTransformerSettings settings = small_text("bidirectional");
  settings.layers = 1, settings.local = LocalAttentionSettings{.blocks = {0}, .window = 2};
  TextTransformer text(settings);
  text.eval();
  const at::NoGradGuard no_grad;
  const at::Tensor ids = at::zeros({1, 8}, at::kLong);
  at::Tensor changed = ids.clone();
  changed[0][3] = 5;
  const at::Tensor differs = (text.encode(text_input(changed)).tokens - text.encode(text_input(ids)).tokens).abs().amax(2)[0] > 0;
  EXPECT_TRUE(at::equal(differs, at::tensor({0, 1, 1, 1, 1, 1, 0, 0}).to(at::kBool))) << differs;
}

TEST(TextAttention, RejectsSettingsThatContradict) {
  const auto problem = [](const std::function<void(TextTransformerSettings&)>& change) {
    TextTransformerSettings s = small_text("bidirectional");
    change(s);
    return validate(s).value_or(config::Problem{}).key;
  };
  EXPECT_EQ(problem([](auto&) {}), "");
  EXPECT_EQ(problem([](auto& s) { s.position_embedding = "relative", s.attention = "causal"; }), "position_embedding");
  EXPECT_EQ(problem([](auto& s) { s.position_embedding = "relative", s.relative_distance = 8; }), "relative_distance");
  EXPECT_EQ(problem([](auto& s) { s.position_embedding = "rotary", s.head_width = 3; }), "position_embedding");
  EXPECT_EQ(problem([](auto& s) { s.position_embedding = "rotary", s.position_rows = 9; }), "position_rows");
  EXPECT_EQ(problem([](auto& s) { s.position_embedding = "rotary", s.kept_positions = 3; }), "kept_positions");
  EXPECT_EQ(problem([](auto& s) { s.local = LocalAttentionSettings{.blocks = {2}}; }), "local");
  EXPECT_EQ(problem([](auto& s) { s.key_heads = 3; }), "key_heads");
  EXPECT_EQ(problem([](auto& s) { s.first_norm = false, s.block_norm = "after"; }), "first_norm");
  EXPECT_EQ(problem([](auto& s) { s.score_scale = 0; }), "score_scale");
}

// Tests only the gradients of LayerScale's own parameters. The golden cases hold the gradients of all other parameters.
TEST(LayerScale, GradientsMatchFiniteDifferences) {
  at::manual_seed(6);
  TextTransformerSettings s = small_text("causal");
  s.layer_scale_init = 0.5;
  TextTransformer text(s);
  text.to(at::kDouble);
  std::vector<at::Tensor> leaves;
  for (const auto& item : text.named_parameters()) {
    at::Tensor(item.value().detach()).normal_(0, 0.5);  // with the initial deviation of 0.02, finite differences would be inaccurate
    if (item.key().find(".ls_") != std::string::npos) leaves.push_back(item.value());
  }
  ASSERT_EQ(leaves.size(), 4U);
  const at::Tensor ids = at::randint(20, {3, 8}, at::kLong), mask = length_mask({8, 4, 0}, 8);
  const at::Tensor weights = at::randn({3, 8, 8}, at::kDouble);
  expect_gradients_match(leaves, [&] { return (text.encode(text_input(ids, mask)).tokens * weights).sum(); });
}

TEST(PatchSize, MayDifferInHeightAndWidth) {
  VitSettings s;
  s.image_size = config::Size(8, 16), s.patch_size = config::Size(4, 8), s.width = 8, s.layers = 2, s.heads = 2;
  Vit vit(s);
  EXPECT_EQ(vit.grid(), config::Size(2, 2));
  EXPECT_EQ(vit.encode(image_input(at::randn({2, 3, 8, 16}))).tokens.sizes(), (std::vector<std::int64_t>{2, 4, 8}));
}

TEST(Vit, KeepsTokensContiguousSoThatNormsNeedNoCopies) {
  VitSettings s;
  s.image_size = 8, s.patch_size = 4, s.width = 8, s.layers = 1, s.heads = 2, s.class_token = false;
  s.pre_norm = false, s.final_norm = "none";
  EXPECT_TRUE(Vit(s).encode(image_input(at::randn({2, 3, 8, 8}))).tokens.is_contiguous());
}

TEST(Vit, AgreesOnAGpuWithTheCpu) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  VitSettings s;
  s.image_size = config::Size(11, 20), s.patch_size = config::Size(4, 8), s.width = 8, s.layers = 2, s.heads = 2;
  s.partial_patches = true;
  Vit vit(s);
  const at::Tensor image = at::randn({2, 3, 11, 20}), tokens = vit.encode(image_input(image)).tokens;
  vit.to(at::kCUDA);
  expect_close(vit.encode(image_input(image.to(at::kCUDA))).tokens.cpu(), tokens, 1e-5);
}

TEST(PositionEmbedding, NoneMakesTheVitIgnoreTheOrderOfPatches) {
  at::manual_seed(9);
  VitSettings s;
  s.image_size = 8, s.patch_size = 4, s.width = 8, s.layers = 2, s.heads = 2, s.class_token = false;
  const at::Tensor image = at::randn({2, 3, 8, 8});
  const at::Tensor turned = at::cat({image.slice(3, 4), image.slice(3, 0, 4)}, 3);  // swaps left and right patches
  const auto tokens_swapped_back = [&](Vit& vit, const at::Tensor& x) {
    return vit.encode(image_input(x)).tokens.view({2, 2, 2, 8}).flip(2).reshape({2, 4, 8});
  };
  s.position_embedding = "none";
  Vit blind(s);
  expect_close(blind.encode(image_input(image)).tokens, tokens_swapped_back(blind, turned));
  s.position_embedding = "learned";
  Vit seeing(s);
  EXPECT_GT((seeing.encode(image_input(image)).tokens - tokens_swapped_back(seeing, turned)).abs().max().item<float>(),
            1e-3);
}

TEST(FinalNorm, AfterPoolingMatchesBeforePoolingForTheClassToken) {
  TowerSettings s{
      {"vit", settings("{image_size: 16, patch_size: 8, width: 12, layers: 1, heads: 3}")}, {"cls"}, {"none"}};
  const at::Tensor image = at::randn({2, 3, 16, 16});
  const auto pooled = [&](const char* where) {
    s.encoder.settings.set("final_norm", config::Node::scalar(where));
    at::manual_seed(8);
    SharedParameters shared;
    Tower tower(s, Modality::image, shared, "image");
    return tower.forward(image_input(image), {.tokens = true});
  };
  const TowerFeatures before = pooled("tokens"), after = pooled("pooled");
  expect_close(before.global, after.global);
  EXPECT_GT((before.tokens - after.tokens).abs().max().item<float>(), 1e-3);  // the tokens of `after` are not normalized
}

TEST(EncoderTokens, AreTakenBetweenFinalNormAndProjection) {
  const at::Tensor image = at::randn({2, 3, 16, 16});
  for (const char* where : {"tokens", "pooled"}) {
    TowerSettings s{{"vit", settings("{image_size: 16, patch_size: 8, width: 12, layers: 1, heads: 3}")},
                    {"cls"},
                    {"linear", settings("{embed_dim: 5}")}};
    s.encoder.settings.set("final_norm", config::Node::scalar(where));
    at::manual_seed(8);
    SharedParameters shared;
    Tower tower(s, Modality::image, shared, "image");
    const TowerFeatures f = tower.forward(image_input(image), {.encoder_tokens = true});
    EXPECT_EQ(f.encoder_tokens.sizes(), (std::vector<std::int64_t>{2, 4, 12}));
    EXPECT_FALSE(f.tokens.defined());
    // The tokens are the output of an untrained LayerNorm, so their mean is 0 and their mean square 1.
    EXPECT_LT(f.encoder_tokens.mean(2).abs().max().item<float>(), 1e-5) << where;
    EXPECT_NEAR(f.encoder_tokens.square().mean().item<float>(), 1, 1e-2) << where;
    EXPECT_FALSE(tower.forward(image_input(image), {.tokens = true}).encoder_tokens.defined()) << "encoder tokens were not requested";
  }
}

TEST(ReadOuts, EosFindsItsIdAmongRealTokens) {
  ReadOutContext context;
  context.width = 2, context.modality = Modality::text;
  const at::Tensor tokens = at::arange(24, at::kFloat).view({3, 4, 2});
  const at::Tensor ids = at::tensor({1, 9, 9, 0, /**/ 1, 2, 3, 9, /**/ 5, 5, 5, 5}, at::kLong).view({3, 4});
  const at::Tensor mask = length_mask({4, 3, 0}, 4);
  const auto read = [&](const char* yaml, const at::Tensor& with) {
    const Encoded encoded{.tokens = tokens, .mask = with, .ids = ids};
    return readouts().make({"eos", settings(yaml)}, "", context)->forward(encoded, {}).embedding.select(1, 0);
  };
  EXPECT_TRUE(at::equal(read("{eos_id: 9}", {}), at::tensor({2.F, 14.F, 16.F})));  // the third row has no end token, so position 0 is read
  EXPECT_TRUE(at::equal(read("{eos_id: 9}", mask), at::tensor({2.F, 8.F, 0.F})));
  EXPECT_TRUE(at::equal(read("{position: ids}", mask), at::tensor({2.F, 12.F, 0.F})));
  EXPECT_TRUE(at::equal(read("{position: mask}", mask), at::tensor({6.F, 12.F, 0.F})));
  EXPECT_TRUE(at::equal(read("{}", {}), at::tensor({2.F, 14.F, 16.F})));
}

TEST(ReadOuts, NeverPoolTheClassToken) {
  ReadOutContext context;
  context.width = 1, context.tokens = 2, context.class_token = true;
  const Encoded encoded{.tokens = at::tensor({1.F, 3.F}).view({1, 2, 1}), .class_token = at::full({1, 1}, 100.F)};
  for (const char* yaml : {"{}", "{skip_prefix: 1}"}) {
    EXPECT_EQ(readouts().make({"gap", settings(yaml)}, "", context)->forward(encoded, {}).embedding.item<float>(), 2);
    EXPECT_EQ(readouts().make({"max", settings(yaml)}, "", context)->forward(encoded, {}).embedding.item<float>(), 3);
  }
  EXPECT_EQ(readouts().make({"cls"}, "", context)->forward(encoded, {}).embedding.item<float>(), 100);
}

TEST(Autocast, Bf16StaysCloseToFloat32AndKeepsMasterWeights) {
  for (const ModelSettings& s : {small_sparc(), small_clip()}) {
    at::manual_seed(9);
    DualEncoder model(s);
    const at::Tensor pixels = random_pixels(4);
    const TowerInput text = text_input(at::randint(20, {4, 8}, at::kLong), length_mask({8, 3, 0, 5}, 8));
    const at::Tensor image = model.encode_image(pixels).global,
                     words = model.encode_text(text, {.tokens = true}).tokens;
    at::Tensor narrow_image, narrow_words;
    {
      const Autocast autocast(at::kCPU);
      narrow_image = model.encode_image(pixels).global;
      narrow_words = model.encode_text(text, {.tokens = true}).tokens;
    }
    EXPECT_GT(at::cosine_similarity(image, narrow_image.to(at::kFloat)).min().item<double>(), 0.999);
    EXPECT_LT((words - narrow_words).abs().max().item<double>(), 0.05 * words.abs().max().item<double>());
    (narrow_image.to(at::kFloat).sum() + narrow_words.to(at::kFloat).sum()).backward();
    for (const auto& item : model.named_parameters()) {
      EXPECT_EQ(item.value().scalar_type(), at::kFloat);
      if (!item.value().grad().defined()) continue;
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    }
  }
}

VitSettings dropping_vit(double share) {
  VitSettings s;
  s.image_size = 16, s.patch_size = 4, s.width = 8, s.layers = 1, s.heads = 2, s.patch_dropout = share;
  return s;
}

TEST(PatchDropout, TrainingUsesAShareOfEachImageAndEvaluationAllOfIt) {
  at::manual_seed(0);
  Vit vit(dropping_vit(0.75));
  at::Tensor image = at::randn({3, 3, 16, 16}).set_requires_grad(true);
  EXPECT_EQ(vit.encode(image_input(image)).tokens.size(1), 4);
  const auto seen = [&] {
    const Encoded out = vit.encode(image_input(image));
    const at::Tensor gradient =
        torch::autograd::grad({(out.tokens.sum(1) + out.class_token).square().sum()}, {image})[0];
    return at::max_pool2d(gradient.abs().sum(1, true), {4, 4}).gt(0).flatten(1);  // [B, P]
  };
  const at::Tensor first = seen(), second = seen();
  EXPECT_TRUE(at::equal(first.sum(1), at::full({3}, 4, at::kLong)));
  EXPECT_FALSE(at::equal(first, second)) << "each step draws new patches";
  EXPECT_FALSE(at::equal(first[0], first[1])) << "each image draws its own patches";
  vit.eval();
  EXPECT_EQ(vit.encode(image_input(image)).tokens.size(1), 16);
}

TEST(PatchDropout, KeepsPatchesUnchangedAndInOrder) {
  VitSettings settings = dropping_vit(0.5);
  settings.class_token = false;
  settings.layers = 0;
  Vit vit(settings);
  const at::Tensor image = at::randn({2, 3, 16, 16});
  const at::Tensor some = vit.encode(image_input(image)).tokens;
  vit.eval();
  const at::Tensor all = vit.encode(image_input(image)).tokens;
  ASSERT_EQ(some.size(1), 8);
  // Each kept patch equals a patch of the whole image, and the kept patches are in the same order.
  for (std::int64_t b = 0; b < 2; ++b) {
    std::int64_t from = 0;
    for (std::int64_t k = 0; k < 8; ++k) {
      while (from < 16 && !at::allclose(all[b][from], some[b][k])) ++from;
      EXPECT_LT(from++, 16) << "patch " << k << " of image " << b;
    }
  }
}

}  // namespace
}  // namespace tessera
