#include <cmath>

#include <gtest/gtest.h>

#include "tests/objectives/cosmos_case.h"
#include "tests/support/gradcheck.h"

namespace tessera {
namespace {

/// Embeddings [B, D], a mask [B] of the rows that are present, and the captions' ids [B] (undefined for crops).
struct Rows {
  at::Tensor values, there, ids{};
};
using Lists = std::vector<Rows>;

at::Tensor cosmos_unit(const at::Tensor& rows) {
  return rows / rows.square().sum(-1, /*keepdim=*/true).clamp_min(1e-20).sqrt();
}

/// Computes the formulas of cosmos.h image by image and pair by pair, with the parameters of the objective.
class Formula {
 public:
  Formula(const Objective& objective, const Features& features, std::int64_t taught = 2, bool masked = false)
      : features_(map_tensors(
            features, [](const at::Tensor& each) { return each.is_floating_point() ? each.nan_to_num(0.0) : each; })),
        taught_(taught),
        masked_(masked) {
    for (const auto& item : objective.named_parameters()) parameters_[item.key()] = item.value();
  }

  at::Tensor clip() const { return mean(globals(), captions(), parameters_.at("logit_scale").exp()); }

  at::Tensor distillation() const {
    const Lists crops = with_text(crop_list()), texts = with_crop(captions()), images = teacher_crops(),
                taught = teacher_captions();
    const at::Tensor scale = parameters_.at("distill_logit_scale").exp();
    return (mean(images, crops, scale) + mean(crops, taught, scale) + mean(images, texts, scale) +
            mean(taught, texts, scale)) /
           4;
  }

 private:
  std::int64_t images() const { return features_.duplicates.image_group.size(0); }
  Rows whole(const at::Tensor& values) const { return {values, at::ones({images()}, at::kBool)}; }
  Lists globals() const {
    return {whole(features_.image("global_0").global), whole(features_.image("global_1").global)};
  }
  Lists crop_list() const {
    Lists all = globals();
    all.push_back(whole(features_.image("local_0").global));
    return all;
  }
  Lists teacher_crops() const {
    return {whole(features_.teacher_image("global_0").global), whole(features_.teacher_image("global_1").global)};
  }
  Lists first_of(const at::Tensor& texts, std::int64_t count) const {
    const at::Tensor &present = features_.text("captions").present, &ids = features_.duplicates.captions_group;
    Lists out;
    for (std::int64_t k = 0; k < count; ++k) out.push_back({texts.select(1, k), present.select(1, k), ids.select(1, k)});
    return out;
  }
  Lists captions() const { return first_of(features_.text("captions").global, 3); }
  Lists teacher_captions() const { return first_of(features_.teacher_text("captions").global, taught_); }

  // Pools the real tokens [n, D] of one image for one query [D].
  at::Tensor pooled(const std::string& pool, const at::Tensor& query, const at::Tensor& tokens) const {
    const auto of = [&](const char* name) { return parameters_.at(pool + "." + name); };
    const auto normed = [&](const at::Tensor& x, const std::string& norm) {
      const at::Tensor centered = x - x.mean(-1, true);
      return centered / (centered.square().mean(-1, true) + 1e-5).sqrt() * of((norm + ".weight").c_str()) +
             of((norm + ".bias").c_str());
    };
    const std::vector<at::Tensor> weights = of("attn.in_proj_weight").chunk(3),
                                  biases = of("attn.in_proj_bias").chunk(3);
    const at::Tensor q = at::linear(normed(query, "ln_q"), weights[0], biases[0]),
                     k = at::linear(normed(tokens, "ln_k"), weights[1], biases[1]),
                     v = at::linear(normed(tokens, "ln_k"), weights[2], biases[2]);
    std::vector<at::Tensor> heads;
    for (std::int64_t head = 0; head < 2; ++head) {
      const auto part = [&](const at::Tensor& x) { return x.narrow(-1, 2 * head, 2); };
      heads.push_back(at::matmul((at::matmul(part(k), part(q)) / std::sqrt(2.0)).softmax(0), part(v)));
    }
    return at::linear(at::cat(heads), of("attn.out_proj.weight"), of("attn.out_proj.bias"));
  }

  Lists with_text(const Lists& crops) const {
    const TowerFeatures& text = features_.text("captions");
    Lists out;
    for (const auto& [crop, there, none] : crops) {
      std::vector<at::Tensor> rows;
      for (std::int64_t b = 0; b < images(); ++b) {
        const at::Tensor words = text.tokens[b][0].index({text.mask[b][0]});
        rows.push_back(words.size(0) > 0 ? crop[b] + pooled("text_pool", crop[b], words) : crop[b]);
      }
      out.push_back({at::stack(rows), there});
    }
    return out;
  }

  Lists with_crop(const Lists& texts) const {
    Lists out;
    for (const auto& [text, there, ids] : texts) {
      std::vector<at::Tensor> rows;
      for (std::int64_t b = 0; b < images(); ++b)
        rows.push_back(text[b] + pooled("image_pool", text[b], features_.image("global_0").tokens[b]));
      out.push_back({at::stack(rows), there, ids});
    }
    return out;
  }

  // Returns a mask [B, B] that is true where a row and a column are not compared.
  at::Tensor left_out(const at::Tensor& row_there, const Rows& columns) const {
    const at::Tensor absent = (row_there.unsqueeze(1) & columns.there).logical_not();
    if (!masked_) return absent;
    const at::Tensor& groups = features_.duplicates.image_group;
    at::Tensor same = groups.unsqueeze(1) == groups;
    if (columns.ids.defined()) {
      const at::Tensor equal = features_.duplicates.captions_group.unsqueeze(1) == columns.ids.view({1, -1, 1});  // [B, B, K]
      same = same | (equal & features_.text("captions").present.unsqueeze(1)).any(2);
    }
    return absent | (same & at::eye(images(), at::kBool).logical_not());
  }

  at::Tensor mean(const Lists& as, const Lists& bs, const at::Tensor& scale) const {
    constexpr double kNothing = -1e9;  // its exponential is 0
    at::Tensor sum = at::zeros({}, at::kDouble);
    double count = 0;
    for (const Rows& a : as)
      for (const Rows& b : bs) {
        const at::Tensor pairs = a.there & b.there;
        const at::Tensor logits = (at::matmul(cosmos_unit(a.values), cosmos_unit(b.values).t()) * scale)
                                      .masked_fill(left_out(a.there, b), kNothing);
        const at::Tensor both = logits.log_softmax(0).diagonal() + logits.log_softmax(1).diagonal();
        sum = sum - both.index({pairs}).sum() / 2;
        count += pairs.sum().item<double>();
      }
    return sum / count;
  }

  Features features_;
  std::map<std::string, at::Tensor> parameters_;
  std::int64_t taught_;
  bool masked_;
};

std::vector<at::Tensor> leaves_and_parameters(const Features& features, const Objective& objective) {
  std::vector<at::Tensor> out = cosmos_leaves(features);
  for (const auto& item : objective.named_parameters()) out.push_back(item.value());
  return out;
}

double cosmos_term(const Losses& losses, const std::string& name) {
  return tensor_of(losses.terms, name).item<double>();
}

TEST(Cosmos, MatchesTheFormulaInLossAndGradients) {
  for (const bool gaps : {false, true})
    for (const std::string more : {"", "global_captions: 1", "clip_weight: 0.5, distillation_weight: 2"}) {
      SCOPED_TRACE(more + (gaps ? " with gaps" : ""));
      const Features features = cosmos_features(5, gaps);
      const auto objective = made_cosmos(cosmos_yaml(more));
      const Formula formula(*objective, features, more == "global_captions: 1" ? 1 : 2);
      const bool weighted = more.starts_with("clip_weight");
      const Losses losses = objective->forward(features, {});
      const at::Tensor expected =
          (weighted ? 0.5 : 1.0) * formula.clip() + (weighted ? 2.0 : 1.0) * formula.distillation();
      EXPECT_NEAR(cosmos_term(losses, "loss_clip"), formula.clip().item<double>(), 1e-10);
      EXPECT_NEAR(cosmos_term(losses, "loss_distillation"), formula.distillation().item<double>(), 1e-10);
      EXPECT_NEAR(losses.total.item<double>(), expected.item<double>(), 1e-10);
      const auto leaves = leaves_and_parameters(features, *objective);
      const auto ours = torch::autograd::grad({losses.total}, leaves),
                 theirs = torch::autograd::grad({expected}, leaves);
      for (std::size_t i = 0; i < leaves.size(); ++i)
        EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-8, 1e-10)) << i << " " << leaves[i].sizes();
    }
}

TEST(Cosmos, GradientsWithDuplicatesMatchFiniteDifferences) {
  const Features features = cosmos_features(3, /*gaps=*/false);
  features.text("captions").present[0][1] = false;
  for (const std::string duplicates : {"masked", "positive"}) {
    SCOPED_TRACE(duplicates);
    const auto objective = made_cosmos(cosmos_yaml("chunk: 2, duplicates: " + duplicates));
    expect_gradients_match(cosmos_leaves(features), [&] { return objective->forward(features, {}).total; });
  }
}

TEST(Cosmos, PaddingAndAbsentCaptionsHaveNoEffect) {
  const Features spoiled = cosmos_features(5, /*gaps=*/true);
  Features zeroed = cosmos_features(5, /*gaps=*/true);
  for (auto* views : {&zeroed.texts, &zeroed.teacher_texts})
    for (auto& [name, view] : *views)
      for (at::Tensor* tensor : {&view.global, &view.tokens})
        if (tensor->defined()) *tensor = tensor->detach().nan_to_num(0.0).requires_grad_(views == &zeroed.texts);
  const auto objective = made_cosmos();
  const at::Tensor loss = objective->forward(spoiled, {}).total;
  EXPECT_EQ(loss.item<double>(), objective->forward(zeroed, {}).total.item<double>());
  loss.backward();
  const TowerFeatures& text = spoiled.text("captions");
  for (const at::Tensor& each : {text.global, text.tokens}) {
    EXPECT_TRUE(at::isfinite(each.grad()).all().item<bool>());
    EXPECT_EQ(each.grad().masked_select(each.isnan()).abs().sum().item<double>(), 0.0);
  }
}

TEST(Cosmos, WithoutCaptionsOnlyCropsAreCompared) {
  Features features = cosmos_features(4, /*gaps=*/false);
  features.texts["captions"].present.fill_(false);
  const auto objective = made_cosmos();
  const Losses losses = objective->forward(features, {});
  EXPECT_EQ(cosmos_term(losses, "loss_clip"), 0.0);
  EXPECT_GT(cosmos_term(losses, "loss_distillation"), 0.0);
  EXPECT_TRUE(std::isfinite(losses.total.item<double>()));
}

TEST(Cosmos, ReadsOnlyTheTokensOfTheFirstCaptionAndTheFirstCrop) {
  const auto objective = made_cosmos();
  const auto loss = [&](const std::function<void(Features&)>& change) {
    Features features = cosmos_features(4, /*gaps=*/false);
    const at::NoGradGuard no_grad;
    change(features);
    return objective->forward(features, {}).total.item<double>();
  };
  const double plain = loss([](Features&) {});
  EXPECT_EQ(loss([](Features& f) { f.texts["captions"].tokens.narrow(1, 1, 2).zero_(); }), plain);
  EXPECT_NE(loss([](Features& f) { f.texts["captions"].tokens.select(1, 0).zero_(); }), plain);
  EXPECT_NE(loss([](Features& f) { f.images["global_0"].tokens.zero_(); }), plain);
  EXPECT_EQ(loss([](Features& f) { f.teacher_texts["captions"].global.select(1, 2).zero_(); }), plain);
  EXPECT_NE(loss([](Features& f) { f.teacher_texts["captions"].global.select(1, 1).zero_(); }), plain);
  EXPECT_EQ(loss([](Features& f) {
              at::Tensor& global = f.teacher_texts["captions"].global;
              global = global.narrow(1, 0, 2);
            }),
            plain)
      << "the teacher may encode only its captions";
}

TEST(Cosmos, TeacherGetsNoGradient) {
  Features features = cosmos_features(4, /*gaps=*/false);
  for (auto* views : {&features.teacher_images, &features.teacher_texts})
    for (auto& [name, view] : *views) view.global.requires_grad_(true);
  made_cosmos()->forward(features, {}).total.backward();
  for (const auto* views : {&features.teacher_images, &features.teacher_texts})
    for (const auto& [name, view] : *views) EXPECT_FALSE(view.global.grad().defined()) << name;
}

TEST(Cosmos, ChunkChangesNothing) {
  const Features features = cosmos_features(7, /*gaps=*/true);
  expect_chunks_change_nothing({1, 3, 100}, [&](const std::string& chunk) {
    const auto objective = made_cosmos(cosmos_yaml(chunk));
    return loss_and_gradients(objective->forward(features, {}).total, leaves_and_parameters(features, *objective));
  });
}

TEST(Cosmos, MasksDuplicates) {
  const Features features = cosmos_features(5, /*gaps=*/true);
  at::Tensor ids = features.duplicates.captions_group;
  ids[4][0] = ids[3][2].item<std::int64_t>();  // a caption that the teacher sees equals one of another image that it does not see
  const auto objective = made_cosmos(cosmos_yaml("duplicates: masked"));
  const Losses losses = objective->forward(features, {});
  const Formula formula(*objective, features, 2, /*masked=*/true), plain(*objective, features);
  EXPECT_NEAR(cosmos_term(losses, "loss_clip"), formula.clip().item<double>(), 1e-10);
  EXPECT_NEAR(cosmos_term(losses, "loss_distillation"), formula.distillation().item<double>(), 1e-10);
  EXPECT_LT(losses.total.item<double>(), (plain.clip() + plain.distillation()).item<double>());
}

TEST(Cosmos, HalfPrecisionIsWidened) {
  Features features = cosmos_features(4, /*gaps=*/false, at::kFloat);
  const auto objective = made_cosmos(cosmos_yaml(), at::kFloat);
  const auto narrowed = [](Features all, bool again) {
    return map_tensors(all, [&](const at::Tensor& tensor) {
      if (!tensor.is_floating_point()) return tensor;
      const at::Tensor narrow = tensor.detach().to(at::kBFloat16);
      return again ? narrow.to(at::kFloat) : narrow;
    });
  };
  const at::Tensor loss = objective->forward(narrowed(features, false), {}).total;
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), objective->forward(narrowed(features, true), {}).total.item<double>(), 1e-6);
}

TEST(Cosmos, NeedsEachCropTheCaptionsAndATeacher) {
  const Needs needs = made_cosmos()->needs();
  EXPECT_EQ(needs.images,
            (std::map<std::string, ViewNeeds>{
                {"global_0", {.tokens = true, .teacher = true}}, {"global_1", {.teacher = true}}, {"local_0", {}}}));
  EXPECT_EQ(needs.texts,
            (std::map<std::string, ViewNeeds>{{"captions", {.tokens = true, .teacher = true, .teacher_captions = 2}}}));
  EXPECT_FALSE(needs.duplicates);
  EXPECT_TRUE(made_cosmos(cosmos_yaml("duplicates: positive"))->needs().duplicates);
}

TEST(Cosmos, TeacherSeesAsManyCaptionsAsAnyObjectiveNeeds) {
  const auto merged = [](ViewNeeds a, ViewNeeds b) {
    Needs both{.images = {}, .texts = {{"captions", a}}}, other{.images = {}, .texts = {{"captions", b}}};
    both.merge(other);
    return both.texts["captions"].teacher_captions;
  };
  const ViewNeeds all{.teacher = true}, two{.teacher = true, .teacher_captions = 2},
      three{.teacher = true, .teacher_captions = 3}, none;
  EXPECT_EQ(merged(two, three), 3);
  EXPECT_EQ(merged(three, two), 3);
  EXPECT_EQ(merged(two, all), 0);
  EXPECT_EQ(merged(all, two), 0);
  EXPECT_EQ(merged(none, two), 2);
  EXPECT_EQ(merged(two, none), 2);
}

TEST(Cosmos, TeacherMomentumStaysOrRisesByHalfACosine) {
  const StepContext middle{.step = 50, .total_steps = 100};
  EXPECT_DOUBLE_EQ(made_cosmos()->teacher_momentum(middle), 0.999);
  const auto rising = made_cosmos(cosmos_yaml("teacher_momentum: 0.9, teacher_momentum_end: 1"));
  EXPECT_DOUBLE_EQ(rising->teacher_momentum(middle), 0.95);
  EXPECT_FALSE(rising->follows_step()) << "the loss itself does not depend on the step";
}

TEST(Cosmos, ClampsBothTemperaturesUnlessTheyAreFrozen) {
  const auto objective = made_cosmos();
  const auto parameters = objective->named_parameters();
  const at::NoGradGuard no_grad;
  for (const double value : {-1.0, 9.0})
    for (const char* name : {"logit_scale", "distill_logit_scale"}) {
      parameters[name].fill_(value);
      objective->after_step({});
      EXPECT_DOUBLE_EQ(parameters[name].item<double>(), value < 0 ? 0.0 : std::log(100.0)) << name;
    }
  parameters["distill_logit_scale"].set_requires_grad(false).fill_(9);
  objective->after_step({});
  EXPECT_EQ(parameters["distill_logit_scale"].item<double>(), 9);
}

TEST(Cosmos, ParametersHaveTheirNames) {
  std::set<std::string> names;
  for (const auto& item : made_cosmos()->named_parameters()) names.insert(item.key());
  std::set<std::string> expected{"logit_scale", "distill_logit_scale"};
  for (const char* pool : {"image_pool.", "text_pool."})
    for (const char* name : {"ln_q.weight", "ln_q.bias", "ln_k.weight", "ln_k.bias", "attn.in_proj_weight",
                             "attn.in_proj_bias", "attn.out_proj.weight", "attn.out_proj.bias"})
      expected.insert(std::string(pool) + name);
  EXPECT_EQ(names, expected);
}

TEST(Cosmos, ReportsMistakes) {
  const auto made_with = [](const std::string& yaml) { return error_of([&] { made_cosmos(yaml); }); };
  EXPECT_EQ(made_with("{global_crops: 0}"), "test:1: cosmos.global_crops: expected from 1 to 100, got 0");
  EXPECT_NE(made_with("{heads: 3}").find("objective.heads: 3 does not divide the embedding's width of 4"), std::string::npos);
  EXPECT_NE(made_with("{duplicates: some}").find("cosmos.duplicates"), std::string::npos);
  const Features features = cosmos_features(4, /*gaps=*/false);
  const auto forward_with = [](const Features& given, const std::string& more = "") {
    return error_of([&] { made_cosmos(cosmos_yaml(more))->forward(given, {}); });
  };
  EXPECT_EQ(forward_with(features, "global_captions: 4"),
            "objective cosmos: global_captions is 4, but the view captions has 3 captions per image: set "
            "objective.global_captions to at most that");
  Features without_tokens = features;
  without_tokens.texts["captions"].tokens = at::Tensor();
  EXPECT_NE(forward_with(without_tokens).find("objective cosmos needs text_tokens"), std::string::npos);
  Features without_crop = features;
  without_crop.images["local_0"].global = at::Tensor();
  EXPECT_NE(forward_with(without_crop).find("objective cosmos needs one embedding per image"), std::string::npos);
  Features without_teacher = features;
  without_teacher.teacher_images.clear();
  EXPECT_THROW(made_cosmos()->forward(without_teacher, {}), c10::Error);
  Features other_batch = features;
  other_batch.teacher_texts["captions"].global = at::randn({3, 3, kCosmosWidth}, at::kDouble);
  EXPECT_THROW(made_cosmos()->forward(other_batch, {}), c10::Error);
}

TEST(Cosmos, OneTextPerImageIsOneCaption) {
  Features features = cosmos_features(4, /*gaps=*/false);
  const auto first = [](const at::Tensor& all) { return all.defined() ? all.select(1, 0) : all; };
  features.texts["caption"] = map_tensors(features.text("captions"), first);
  features.texts["caption"].present = at::Tensor();
  features.teacher_texts["caption"] = map_tensors(features.teacher_text("captions"), first);
  features.texts["captions"] =
      map_tensors(features.text("captions"), [](const at::Tensor& all) { return all.narrow(1, 0, 1); });
  EXPECT_EQ(
      made_cosmos(cosmos_yaml("global_captions: 1, text_view: caption"))->forward(features, {}).total.item<double>(),
      made_cosmos(cosmos_yaml("global_captions: 1"))->forward(features, {}).total.item<double>());
}

}  // namespace
}  // namespace tessera
