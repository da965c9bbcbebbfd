#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "tests/objectives/captioning_case.h"
#include "tests/objectives/checks.h"
#include "tests/support/gradcheck.h"

namespace tessera {
namespace {

/// Computes the decoder's states and the cross-entropy of a token in float64, with the papers' formulas. Handles one sequence at a time,
/// without padding. Each pre-norm block consists of self-attention, attention to the image and a GELU MLP (Vaswani et al. 2017).
class PlainDecoder {
 public:
  PlainDecoder(const Objective& objective, at::Tensor table, std::int64_t layers, std::int64_t heads)
      : table_(std::move(table)), layers_(layers), heads_(heads) {
    for (const auto& item : objective.named_parameters()) values_[item.key()] = item.value().detach();
  }

  const at::Tensor& value(const std::string& name) const { return values_.at(name); }

  /// Returns the decoder's states [T, w] for an image [N, w'] and for input rows [T, w], to which this function adds the position
  /// embeddings.
  at::Tensor states(const at::Tensor& rows, const at::Tensor& image, bool causal) const {
    at::Tensor seen = image;
    if (values_.contains("decoder.memory_projection.weight"))
      seen = at::matmul(image, value("decoder.memory_projection.weight").t()) + value("decoder.memory_projection.bias");
    at::Tensor x = rows + value("decoder.positional_embedding").slice(0, 0, rows.size(0));
    for (std::int64_t i = 0; i < layers_; ++i) {
      const std::string block = "decoder.blocks." + std::to_string(i) + ".";
      const at::Tensor own = normalized(x, block + "ln_1");
      x = x + attended(own, own, block + "attn.", causal);
      x = x + attended(normalized(x, block + "ln_2"), seen, block + "cross_attn.", false);
      const at::Tensor inner = at::matmul(normalized(x, block + "ln_3"), value(block + "mlp.c_fc.weight").t()) + value(block + "mlp.c_fc.bias");
      const at::Tensor active = inner * 0.5 * (1 + at::erf(inner / std::sqrt(2.0)));
      x = x + at::matmul(active, value(block + "mlp.c_proj.weight").t()) + value(block + "mlp.c_proj.bias");
    }
    return normalized(x, "decoder.ln_final");
  }

  /// Returns -log p(target) for a state; `outputs` is the output matrix.
  static double cost(const at::Tensor& state, const at::Tensor& outputs, std::int64_t target) {
    const at::Tensor logits = at::matmul(outputs, state);
    return (logits.exp().sum().log() - logits[target]).item<double>();
  }
  at::Tensor word(std::int64_t id) const { return table_.detach()[id]; }
  const at::Tensor& table() const { return table_; }

 private:
  at::Tensor normalized(const at::Tensor& x, const std::string& name) const {
    const at::Tensor centered = x - x.mean(1, true);
    return centered / (centered.square().mean(1, true) + 1e-5).sqrt() * value(name + ".weight") + value(name + ".bias");
  }
  at::Tensor attended(const at::Tensor& asking, const at::Tensor& seen, const std::string& name, bool causal) const {
    const std::int64_t w = asking.size(1), each = w / heads_;
    const at::Tensor weight = value(name + "in_proj_weight"), bias = value(name + "in_proj_bias");
    const auto projected = [&](const at::Tensor& x, std::int64_t part) {
      return at::matmul(x, weight.narrow(0, part * w, w).t()) + bias.narrow(0, part * w, w);
    };
    const at::Tensor q = projected(asking, 0), k = projected(seen, 1), v = projected(seen, 2);
    at::Tensor out = at::zeros_like(q);
    for (std::int64_t t = 0; t < q.size(0); ++t) {
      const std::int64_t count = causal ? t + 1 : k.size(0);
      for (std::int64_t h = 0; h < heads_; ++h) {
        const auto part = [&](const at::Tensor& x) { return x.slice(0, 0, count).narrow(1, h * each, each); };
        const at::Tensor shares = (at::matmul(part(k), q[t].narrow(0, h * each, each)) / std::sqrt(static_cast<double>(each))).exp();
        out[t].narrow(0, h * each, each) = at::matmul(shares / shares.sum(), part(v));
      }
    }
    return at::matmul(out, value(name + "out_proj.weight").t()) + value(name + "out_proj.bias");
  }

  std::map<std::string, at::Tensor> values_;
  at::Tensor table_;
  std::int64_t layers_, heads_;
};

std::vector<std::int64_t> real_ids(const at::Tensor& ids, const at::Tensor& mask) {
  const at::Tensor real = ids.masked_select(mask).contiguous();
  return {real.const_data_ptr<std::int64_t>(), real.const_data_ptr<std::int64_t>() + real.numel()};
}

at::Tensor image_of(const DescribedImages& images, std::int64_t i) {
  return images.patches.detach()[i].index_select(0, images.patch_mask[i].nonzero().squeeze(1));
}

// Returns the cost of a caption's ids. Each id is predicted from the ids before it. With `parallel`, all ids are predicted at once instead.
double caption_cost(const PlainDecoder& plain, const DescribedImages& images, std::int64_t i, bool parallel) {
  const auto ids = real_ids(images.ids[i], images.mask[i]);
  std::vector<at::Tensor> rows(kCaseLongest, parallel ? plain.value("mask_token") : at::Tensor());
  if (!parallel) {
    rows = {plain.value("task_tokens")[0]};
    for (std::size_t t = 0; t + 1 < ids.size(); ++t) rows.push_back(plain.word(ids[t]));
  }
  const at::Tensor states = plain.states(at::stack(rows), image_of(images, i), !parallel);
  double sum = 0;
  for (std::size_t t = 0; t < ids.size(); ++t) sum += PlainDecoder::cost(states[static_cast<std::int64_t>(t)], plain.table(), ids[t]);
  return sum;
}

std::vector<std::int64_t> tokens_of_box(const at::Tensor& corners, std::int64_t bins) {
  std::vector<std::int64_t> out;
  for (std::int64_t c = 0; c < 4; ++c)
    out.push_back(std::min(bins - 1, static_cast<std::int64_t>(std::floor(corners[c].item<float>() * static_cast<float>(bins)))));
  return out;
}

TEST(Captioning, IsTheCrossEntropyOfEachTokenGivenThePreviousOnes) {
  for (const char* vocabulary : {"shared", "own"}) {
    DescribedImages images;
    const std::string own = std::string(vocabulary) == "own" ? ", vocabulary: own, width: 8" : "";
    const auto objective = images.objective("parallel: 0, decoder: {context_length: 5, layers: 2, heads: 2" + own + "}");
    const at::Tensor table = own.empty() ? images.shared.token_embedding : objective->named_parameters()["decoder.token_embedding.weight"];
    const PlainDecoder plain(*objective, table.detach(), 2, 2);
    double sum = 0;
    for (std::int64_t i = 0; i < 3; ++i) sum += caption_cost(plain, images, i, /*parallel=*/false);
    EXPECT_NEAR(objective->forward(images.features(), {}).total.item<double>(), sum / 9, 1e-9) << vocabulary;
  }
}

TEST(Captioning, ParallelPredictionUsesOnlyMaskTokens) {
  DescribedImages images;
  const auto objective = images.objective("parallel: 1, caption_weight: 2");
  const PlainDecoder plain(*objective, images.shared.token_embedding.detach(), 2, 2);
  double sum = 0;
  for (std::int64_t i = 0; i < 3; ++i) sum += caption_cost(plain, images, i, /*parallel=*/true);
  const Losses losses = objective->forward(images.features(), {});
  EXPECT_NEAR(terms_of(losses).at("loss_captioning"), sum / 9, 1e-9);
  EXPECT_NEAR(losses.total.item<double>(), 2 * sum / 9, 1e-9);
}

// Each image's caption is predicted in one of two modes: one id after the other, or all ids in parallel. The test tries every assignment of
// modes to images. Only for one assignment do the costs add up to the loss.
TEST(Captioning, PredictsAShareOfTheImagesInParallel) {
  DescribedImages images = DescribedImages().at({0, 1, 2, 0, 1, 0});
  const auto objective = images.objective("parallel: 0.5");
  const PlainDecoder plain(*objective, images.shared.token_embedding.detach(), 2, 2);
  std::vector<double> one_by_one, at_once;
  for (std::int64_t i = 0; i < 6; ++i) {
    one_by_one.push_back(caption_cost(plain, images, i, false));
    at_once.push_back(caption_cost(plain, images, i, true));
  }
  const double tokens = images.mask.sum().item<double>();
  const auto chosen = [&](std::int64_t step, std::uint64_t seed) {
    const double loss = objective->forward(images.features(), {.step = step, .seed = seed}).total.item<double>() * tokens;
    for (int set = 0; set < 64; ++set) {
      double sum = 0;
      for (std::size_t i = 0; i < 6; ++i) sum += set >> i & 1 ? at_once[i] : one_by_one[i];
      if (std::abs(sum - loss) < 1e-8) return set;
    }
    return -1;
  };
  std::set<int> sets;
  int in_parallel = 0;
  for (std::int64_t step = 0; step < 40; ++step) {
    const int set = chosen(step, 7);
    ASSERT_GE(set, 0) << "the loss is not a sum over the two modes";
    EXPECT_EQ(chosen(step, 7), set);
    sets.insert(set);
    in_parallel += std::popcount(static_cast<unsigned>(set));
  }
  EXPECT_GT(sets.size(), 15u);
  EXPECT_NEAR(in_parallel / 240.0, 0.5, 0.12);
  EXPECT_NE(chosen(0, 7) * 64 + chosen(1, 7), chosen(0, 8) * 64 + chosen(1, 8)) << "another seed";
}

TEST(Captioning, PredictsBoxesFromPhrasesAndPhrasesFromBoxes) {
  DescribedImages images;
  const auto objective = images.objective("caption_weight: 0, referring_weight: 1, grounded_weight: 0.5, coordinate_bins: 7");
  const PlainDecoder plain(*objective, images.shared.token_embedding.detach(), 2, 2);
  const at::Tensor bins = plain.value("coordinates"), task = plain.value("task_tokens");
  double referring = 0, grounded = 0, boxes = 0, words = 0;
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t r = 0; r < 2; ++r) {
      const auto ids = real_ids(images.phrase_ids[i][r], images.phrase_mask[i][r]);
      if (!images.box_mask[i][r].item<bool>() || ids.empty()) continue;
      const auto box = tokens_of_box(images.corners[i][r], 7);
      std::vector<at::Tensor> rows{task[1]};
      for (const std::int64_t id : ids) rows.push_back(plain.word(id));
      const auto start = static_cast<std::int64_t>(rows.size()) - 1;
      for (std::size_t c = 0; c < 3; ++c) rows.push_back(bins[box[c]]);
      at::Tensor states = plain.states(at::stack(rows), image_of(images, i), true);
      for (std::int64_t c = 0; c < 4; ++c) referring += PlainDecoder::cost(states[start + c], bins, box[static_cast<std::size_t>(c)]);
      rows = {task[2]};
      for (const std::int64_t token : box) rows.push_back(bins[token]);
      for (std::size_t t = 0; t + 1 < ids.size(); ++t) rows.push_back(plain.word(ids[t]));
      states = plain.states(at::stack(rows), image_of(images, i), true);
      for (std::size_t t = 0; t < ids.size(); ++t)
        grounded += PlainDecoder::cost(states[4 + static_cast<std::int64_t>(t)], plain.table(), ids[t]);
      boxes += 1;
      words += static_cast<double>(ids.size());
    }
  ASSERT_EQ(boxes, 4);
  const Losses losses = objective->forward(images.features(), {});
  EXPECT_NEAR(terms_of(losses).at("loss_referring"), referring / (4 * boxes), 1e-9);
  EXPECT_NEAR(terms_of(losses).at("loss_grounded"), grounded / words, 1e-9);
  EXPECT_NEAR(losses.total.item<double>(), referring / (4 * boxes) + 0.5 * grounded / words, 1e-9);
}

TEST(Captioning, GradientsMatchFiniteDifferences) {
  const std::set<std::string> checked = {"task_tokens", "mask_token", "coordinates", "decoder.memory_projection.bias", "decoder.ln_final.weight"};
  for (const char* more : {"parallel: 0.5, decoder: {", "parallel: 0, chunk: 1, decoder: {vocabulary: own, ",
                           "caption_weight: 0.5, referring_weight: 1, grounded_weight: 2, coordinate_bins: 3, chunk: 1, decoder: {"}) {
    SCOPED_TRACE(more);
    DescribedImages images = DescribedImages().at({1, 3});
    images.patches = images.patches.detach().nan_to_num().requires_grad_(true);
    const auto objective = images.objective(std::string(more) + "context_length: 5, heads: 2, layers: 1}");
    std::vector<at::Tensor> leaves = {images.shared.token_embedding, images.patches};
    for (const auto& item : objective->named_parameters())
      if (checked.contains(item.key())) leaves.push_back(item.value());
    expect_gradients_match(leaves, [&] { return objective->forward(images.features(), {}).total; }, 1e-5);
  }
}

TEST(Captioning, ChunksChangeNothing) {
  DescribedImages images;
  expect_chunks_change_nothing({1, 3, 4, 9}, [&](const std::string& chunk) {
    const auto objective = images.objective("referring_weight: 1, grounded_weight: 1, " + chunk);
    std::vector<at::Tensor> leaves = objective->parameters();
    leaves.insert(leaves.end(), {images.shared.token_embedding, images.patches});
    return loss_and_gradients(objective->forward(images.features(), {}).total, leaves);
  });
}

TEST(Captioning, Bfloat16IsNearlyTheSame) {
  const auto outcome = [](const std::string& precision) {
    DescribedImages images;
    const auto objective = images.objective("referring_weight: 1, chunk: 3, decoder: {context_length: 5, layers: 2, heads: 2, "
                                            "vocabulary: own, width: 8, precision: " + precision + "}");
    objective->to(at::kFloat);
    images.patches = images.patches.detach().to(at::kFloat).requires_grad_(true);
    const at::Tensor loss = objective->forward(images.features(), {}).total;
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    return std::pair{loss.item<double>(), torch::autograd::grad({loss}, {images.patches})[0]};
  };
  const auto [exact, gradient] = outcome("float32");
  const auto [rounded, rough] = outcome("bf16");
  EXPECT_NE(rounded, exact);
  EXPECT_NEAR(rounded, exact, 0.02 * exact);
  EXPECT_LT((rough - gradient).norm().item<double>(), 0.1 * gradient.norm().item<double>());
}

TEST(Captioning, AbsentPatchesGetNoGradient) {
  DescribedImages images;
  const auto objective = images.objective("referring_weight: 1, grounded_weight: 1");
  const at::Tensor gradient = torch::autograd::grad({objective->forward(images.features(), {}).total}, {images.patches})[0];
  EXPECT_TRUE(gradient.isfinite().all().item<bool>());
  EXPECT_EQ(gradient.masked_select(~images.patch_mask.unsqueeze(2)).abs().sum().item<double>(), 0);
  EXPECT_GT(gradient[0].abs().sum().item<double>(), 0);
}

TEST(Captioning, EachCaptionOfAnImageCounts) {
  DescribedImages images;
  const auto objective = images.objective("parallel: 0, text_view: captions");
  Features features = images.features();
  const at::Tensor ids = images.ids, mask = images.mask;
  // Each image's second caption is the beginning of its first one.
  const at::Tensor shorter = mask & (at::arange(kCaseLongest) < 2);
  features.texts["captions"].input = text_input(at::stack({ids, ids}, 1), at::stack({mask, shorter}, 1));
  features.texts["captions"].present = features.texts["captions"].input.mask.any(2);
  const auto loss_of = [&](const at::Tensor& own) {
    DescribedImages other = images;
    other.mask = own;
    return images.objective("parallel: 0")->forward(other.features(), {}).total.item<double>() * own.sum().item<double>();
  };
  EXPECT_NEAR(objective->forward(features, {}).total.item<double>(), (loss_of(mask) + loss_of(shorter)) / 14, 1e-9);
}

TEST(Captioning, AbsentImagesAndCaptionsDoNotCount) {
  DescribedImages images;
  const auto objective = images.objective("skip_absent: true, parallel: 0, referring_weight: 1, grounded_weight: 1");
  Features features = images.features();
  features.images["image"].present = at::tensor({1, 0, 1, 1}).to(at::kBool);
  features.texts["caption"].present = at::tensor({1, 1, 0, 1}).to(at::kBool);
  const auto counted = terms_of(objective->forward(features, {}));
  DescribedImages rest = images;
  rest.mask = images.mask & at::tensor({1, 0, 0, 1}).to(at::kBool).unsqueeze(1);
  rest.phrase_mask = images.phrase_mask & at::tensor({1, 0, 1, 1}).to(at::kBool).view({4, 1, 1});
  const auto expected = terms_of(objective->forward(rest.features(), {}));
  for (const auto& [name, value] : expected) EXPECT_NEAR(counted.at(name), value, 1e-12) << name;
}

TEST(Captioning, BatchWithoutCaptionsOrBoxesHasZeroLoss) {
  DescribedImages images;
  const auto objective = images.objective("referring_weight: 1, grounded_weight: 1");
  images.mask = at::zeros_like(images.mask);
  images.box_mask = at::zeros_like(images.box_mask);
  Features features = images.features();
  const at::Tensor loss = objective->forward(features, {}).total;
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  // Now the batch has no entries for boxes at all, not even masked ones.
  features.images["image"].boxes = {at::zeros({4, 0, 4}), at::zeros({4, 0}, at::kBool)};
  features.texts[kPhrases].input = text_input(at::zeros({4, 0, 4}, at::kLong), at::zeros({4, 0, 4}, at::kBool));
  features.texts[kPhrases].present = at::zeros({4, 0}, at::kBool);
  const at::Tensor none = objective->forward(features, {}).total;
  EXPECT_EQ(none.item<double>(), 0);
  none.backward();
  for (const auto& item : objective->named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(Captioning, FirstPaddingIdEndsACaptionIfPaddingIsText) {
  DescribedImages images;
  const auto plain = images.objective("parallel: 0");
  images.mask = at::arange(kCaseLongest).unsqueeze(0) < at::tensor({5, 4, 2, 1}, at::kLong).unsqueeze(1);
  images.ids = images.ids.remainder(9).masked_fill(at::arange(kCaseLongest).unsqueeze(0) >= at::tensor({5, 3, 1, 0}, at::kLong).unsqueeze(1), 10);
  images.ids[0][1] = 10;  // inside a caption, the padding id 10 counts as a word
  const double expected = plain->forward(images.features(), {}).total.item<double>();
  images.mask.fill_(true);
  EXPECT_NEAR(images.objective("parallel: 0, padding_id: 10")->forward(images.features(), {}).total.item<double>(), expected, 1e-12);
  EXPECT_GT(std::abs(plain->forward(images.features(), {}).total.item<double>() - expected), 1e-3);
}

TEST(Captioning, NeedsImageTokensAndTextIds) {
  DescribedImages images;
  const Needs captions = images.objective("")->needs(), all = images.objective("referring_weight: 1")->needs(),
              boxes = images.objective("caption_weight: 0, grounded_weight: 1")->needs();
  EXPECT_EQ(captions.images.at("image"), (ViewNeeds{.encoder_tokens = true}));
  EXPECT_EQ(captions.texts.size(), 1u);
  EXPECT_EQ(captions.texts.at("caption"), (ViewNeeds{.student = false, .input_ids = true}));
  EXPECT_TRUE(all.images.at("image").boxes && all.texts.at(kPhrases).optional && all.texts.contains("caption"));
  EXPECT_FALSE(boxes.texts.contains("caption") || boxes.texts.at(kPhrases).optional);
  EXPECT_TRUE(images.objective("")->follows_step());
  EXPECT_FALSE(images.objective("parallel: 0")->follows_step());
}

TEST(Captioning, WritesTheMostLikelyTokensAndBox) {
  DescribedImages images;
  const auto objective = images.objective("referring_weight: 1, coordinate_bins: 5");
  const PlainDecoder plain(*objective, images.shared.token_embedding.detach(), 2, 2);
  const TowerFeatures image = images.features().image();
  const at::Tensor written = objective->write(image, {});
  ASSERT_EQ(written.sizes(), (std::vector<std::int64_t>{4, kCaseLongest}));
  const at::Tensor boxes = objective->locate(image, images.phrase_ids, images.phrase_mask);
  const auto best = [](const at::Tensor& outputs, const at::Tensor& state) { return at::matmul(outputs, state).argmax().item<std::int64_t>(); };
  for (std::int64_t i = 0; i < 4; ++i) {
    std::vector<at::Tensor> rows{plain.value("task_tokens")[0]};
    for (std::int64_t t = 0; t < kCaseLongest; ++t) {
      const std::int64_t next = best(plain.table(), plain.states(at::stack(rows), image_of(images, i), true)[t]);
      EXPECT_EQ(written[i][t].item<std::int64_t>(), next) << i << ", " << t;
      rows.push_back(plain.word(next));
    }
    for (std::int64_t r = 0; r < 2; ++r) {
      rows = {plain.value("task_tokens")[1]};
      for (const std::int64_t id : real_ids(images.phrase_ids[i][r], images.phrase_mask[i][r])) rows.push_back(plain.word(id));
      for (std::int64_t c = 0; c < 4; ++c) {
        const std::int64_t next = best(plain.value("coordinates"), plain.states(at::stack(rows), image_of(images, i), true)[-1]);
        EXPECT_NEAR(boxes[i][r][c].item<double>(), (static_cast<double>(next) + 0.5) / 5, 1e-6);
        rows.push_back(plain.value("coordinates")[next]);
      }
    }
  }
  // Each caption ends at the first position where the end token is the most likely one. Other captions of the batch may continue.
  const std::int64_t end = written[1][0].item<std::int64_t>();
  const at::Tensor shorter = objective->write(image, {end});
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t t = 0, on = 1; t < shorter.size(1); ++t) {
      on = on && written[i][t].item<std::int64_t>() != end;
      EXPECT_EQ(shorter[i][t].item<std::int64_t>(), on ? written[i][t].item<std::int64_t>() : -1);
    }
}

TEST(Captioning, TokenHitsAreTheMostLikelyTokens) {
  DescribedImages images;
  const auto objective = images.objective("");
  const TowerFeatures image = images.features().image();
  at::Tensor ids = objective->write(image, {}), mask = images.mask;
  ids.masked_fill_(~mask, -3);
  EXPECT_TRUE(at::equal(objective->token_hits(image, ids, mask).right, mask));
  ids[0][4] = (ids[0][4] + 1).remainder(kCaseIds);
  const TokenHits hits = objective->token_hits(image, ids, mask);
  EXPECT_FALSE(hits.right[0][4].item<bool>());
  EXPECT_EQ(hits.right.sum().item<std::int64_t>(), 8);
  EXPECT_TRUE(at::equal(hits.counted, mask));
}

TEST(Captioning, ReportsMistakes) {
  const auto made = [](const std::string& yaml, const ObjectiveContext& context) {
    return message_of([&] { objectives().make({"captioning", config::parse_yaml(yaml, "run.yaml")}, "objective", context); });
  };
  DescribedImages images;
  SharedParameters none;
  EXPECT_EQ(made("{}", {.shared = &none, .image_width = 6, .vocab_size = 9}),
            "objective.decoder.vocabulary is shared, but this model's text encoder has no token table: set it to own");
  EXPECT_NE(made("{decoder: {vocabulary: own}}", {.shared = &none, .image_width = 6}).find("set model.text"), std::string::npos);
  EXPECT_EQ(made("{decoder: {heads: 2, width: 8}}", {.shared = &images.shared, .image_width = 6, .vocab_size = kCaseIds}),
            "objective.decoder.width is 8, but the text encoder's token table is 4 wide: leave it out, or set vocabulary to own");
  EXPECT_EQ(made("{decoder: {heads: 5, vocabulary: own}}", {.shared = &none, .image_width = 6, .vocab_size = 9}),
            "objective.decoder.heads: 5 does not divide the width of the decoder, 6");
  EXPECT_NE(made("{caption_weight: 0}", {}).find("there is nothing to train on"), std::string::npos);

  const auto objective = images.objective("referring_weight: 1");
  const auto failed = [&](const std::function<void(Features&)>& change) {
    Features features = images.features();
    change(features);
    return message_of([&] { objective->forward(features, {}); });
  };
  EXPECT_EQ(failed([](Features& f) { f.images["image"].encoder_tokens = at::Tensor(); }),
            "captioning: the encoder tokens of image are missing: the tower does not output them");
  EXPECT_EQ(failed([](Features& f) { f.texts["caption"].input = {}; }), "captioning: the ids of caption are missing: the tower does not output them");
  EXPECT_EQ(failed([](Features& f) { f.texts["caption"].input.ids = at::zeros({3, 5}, at::kLong); }),
            "captioning: the ids of caption must be [B, L] or [B, K, L] with B = 4, got [3, 5]");
  EXPECT_EQ(failed([](Features& f) { f.texts["caption"].input = text_input(at::zeros({4, 9}, at::kLong)); }),
            "objective.decoder.context_length is 5, but captions have up to 9 tokens: make it at least that many");
  EXPECT_EQ(failed([](Features& f) { f.images["image"].boxes = {}; }), "captioning: the boxes of image are missing");
  EXPECT_EQ(failed([](Features& f) { f.images["image"].boxes = {at::zeros({4, 3, 4}), at::ones({4, 3}, at::kBool)}; }),
            "captioning: the boxes must be [B, R, 4] and their mask [B, R] = [4, 2], as the texts of phrases, got [4, 3, 4] and [4, 3]");
  EXPECT_EQ(failed([](Features& f) { f.images["image"].encoder_tokens = at::zeros({4, 3, 7}); }),
            "the caption decoder attends to tokens [B, N, 6], got [4, 3, 7]");
}

}  // namespace
}  // namespace tessera
