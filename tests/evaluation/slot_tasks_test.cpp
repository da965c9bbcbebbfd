#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include "src/base/digest.h"
#include "src/evaluation/kept_slots.h"
#include "src/evaluation/metrics/slots.h"
#include "src/evaluation/metrics/zero_shot.h"
#include "src/evaluation/embedder_views.h"
#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/task_case.h"
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

constexpr std::int64_t kSlots = 5, kWidth = 4;

/// Embeds an image or a text as random slots. An image's slots depend on its first byte and attend to 2 x 2 patches; a text's
/// slots depend on the text and attend to three tokens.
class RandomSlots final : public test::FixedEmbedder {
 public:
  std::vector<std::int64_t> order = {0, 1, 2, 3, 4};  // the order in which the slots are returned
  std::int64_t text_slots = kSlots;
  bool slots = true, attention = true, text_tower = true;

  RandomSlots() : FixedEmbedder(16, 2) {}
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& images, const ViewNeeds& needs) const override {
    const at::Tensor& pixels = images.pixels;
    std::vector<std::uint64_t> seeds;
    for (std::int64_t i = 0; i < pixels.size(0); ++i) seeds.push_back(pixels[i][0][0][0].item<std::uint8_t>());
    TowerFeatures out = features(seeds, kSlots, 4, needs);
    if (needs.dense) out.dense = at::ones({pixels.size(0), 4, kSlots * kWidth});
    return out;
  }
  bool takes_texts() const override { return text_tower; }
  TowerFeatures encode_texts(const std::vector<std::string>& texts, const ViewNeeds& needs) const override {
    std::vector<std::uint64_t> seeds;
    for (const std::string& text : texts) seeds.push_back(fingerprint(text) >> 1);
    TowerFeatures out = features(seeds, text_slots, 3, needs);
    if (needs.input_ids) {
      out.input.ids = at::tensor({7, 8, 9}, at::kLong).repeat({std::ssize(texts), 1});
      out.input.mask = at::tensor({1, 1, 0}, at::kLong).to(at::kBool).repeat({std::ssize(texts), 1});
    }
    return out;
  }
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override {
    const std::int64_t count = prompts.global.size(0) / per_class;
    TowerFeatures out;
    out.global =
        metrics::class_embeddings(prompts.global, at::arange(count, at::kLong).repeat_interleave(per_class), count);
    if (prompts.slots.defined()) out.slots = metrics::class_slots(prompts.slots.unflatten(0, {count, per_class}));
    return out;
  }
  at::Tensor similarity(const TowerFeatures& a, const TowerFeatures& b) const override {
    return a.global.to(at::kDouble).matmul(b.global.to(at::kDouble).t());
  }

 private:
  TowerFeatures features(const std::vector<std::uint64_t>& seeds, std::int64_t count, std::int64_t places,
                         const ViewNeeds& needs) const {
    std::vector<at::Tensor> rows, weights;
    for (const std::uint64_t seed : seeds) {
      const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
      rows.push_back(at::randn({kSlots, kWidth}, generator, at::kFloat).index_select(0, at::tensor(order, at::kLong)));
      weights.push_back(at::randn({kSlots, places}, generator, at::kFloat).softmax(1));
    }
    const at::Tensor own = at::stack(rows).narrow(1, 0, count);
    TowerFeatures out;
    out.global = metrics::slot_embeddings(own).to(at::kFloat);
    if (slots && needs.slots) out.slots = own;
    if (attention && needs.attention) out.attention = at::stack(weights).narrow(1, 0, count);
    return out;
  }
};

/// A source in which sample i is an image of gray value i with a label, a caption, a mask and hard negatives.
class GraySource final : public IndexedSource {
 public:
  std::int64_t count = 40, first = 0;

  std::int64_t size() const override { return count; }
  Sample get(std::int64_t index) const override {
    const std::int64_t number = first + index;
    Sample sample;
    sample.key = concat("sample", number);
    sample.label = number % 3;
    sample.image = {16, 16, std::vector<std::uint8_t>(16 * 16 * 3, static_cast<std::uint8_t>(number))};
    sample.mask.assign(16 * 16, 0);
    sample.captions = {concat("right ", number)};
    sample.negatives = {{"swap_att", concat("wrong ", number)}, {"add_obj", concat("also wrong ", number)}};
    return sample;
  }
  std::vector<std::string> class_names() const override { return {"one", "two", "three", "background"}; }
  std::int64_t background_class() const override { return 3; }
  std::string describe() const override { return first == 0 ? "gray pictures" : concat("gray pictures from ", first); }
};

class Slots : public FolderTest {
 protected:
  Slots() {
    context.source = std::make_shared<GraySource>();
    auto train = std::make_shared<GraySource>();
    train->first = 100;
    context.train_source = train;
    context.batch_size = 16;
  }

  TaskResult run(const std::string& yaml, const Embedder& embedder) const {
    return run_task(task_of(yaml), embedder, context);
  }
  SlotChoice choose(std::int64_t top) const {
    SlotSettings settings;
    settings.top = top;
    settings.templates = {"a {}", "the {}"};
    return choose_slots(model, count_slots(model, "--slots"), settings, context);
  }

  RandomSlots model;
  EvaluationContext context;
};

TEST_F(Slots, AllSlotsEqualThePlainEvaluation) {
  const SlotEmbedder all(model, {3, 0, 1, 4, 2});
  const at::Tensor pixels = at::arange(6, at::kByte).view({6, 1, 1, 1}).expand({6, 3, 16, 16});
  const auto similarity = [&](const Embedder& embedder) {
    return embedder.similarity(embedder.encode_images(pixels, {}), embedder.encode_texts({"a", "b", "c"}, {}));
  };
  EXPECT_LT((similarity(all) - similarity(model)).abs().max().item<double>(), 1e-6);
  for (const char* task : {"zero_shot", "retrieval", "hard_negatives", "{name: linear_probe, l2: 0.1}", "knn"}) {
    const TaskResult plain = run(task, model), through = run(task, all);
    ASSERT_EQ(plain.metrics.size(), through.metrics.size());
    for (std::size_t i = 0; i < plain.metrics.size(); ++i)
      EXPECT_NEAR(plain.metrics[i].second, through.metrics[i].second, 1e-6) << task << ' ' << plain.metrics[i].first;
  }
}

TEST_F(Slots, ChosenSlotsCompareOnlyThose) {
  const at::Tensor pixels = at::full({1, 3, 16, 16}, 9, at::kByte);
  const SlotEmbedder two(model, {4, 1});
  const at::Tensor found = two.similarity(two.encode_images(pixels, {}), two.encode_texts({"a"}, {}));
  const at::Tensor image = model.encode_images(pixels, {.slots = true}).slots[0],
                   text = model.encode_texts({"a"}, {.slots = true}).slots[0];
  const double expected =
      at::cosine_similarity(image, text, 1).index_select(0, at::tensor({1, 4}, at::kLong)).mean().item<double>();
  EXPECT_NEAR(found.item<double>(), expected, 1e-6);
  EXPECT_FALSE(two.encode_images(pixels, {}).slots.defined()) << "slots were not requested";
}

TEST_F(Slots, KeepsTheBestByZeroShotAccuracy) {
  const SlotChoice choice = choose(2);
  std::vector<double> alone;
  for (std::int64_t slot = 0; slot < kSlots; ++slot)
    alone.push_back(run("{name: zero_shot, topk: [1], templates: [\"a {}\", \"the {}\"]}", SlotEmbedder(model, {slot}))
                        .metrics.at(0)
                        .second);
  std::vector<std::int64_t> order = {0, 1, 2, 3, 4};
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    return alone[static_cast<std::size_t>(a)] > alone[static_cast<std::size_t>(b)];
  });
  EXPECT_EQ(choice.slots, (std::vector<std::int64_t>{order[0], order[1]}));
  EXPECT_DOUBLE_EQ(choice.accuracy.at(0), alone[static_cast<std::size_t>(order[0])]);
  EXPECT_GT(alone[static_cast<std::size_t>(order[0])], alone[static_cast<std::size_t>(order[4])]);
  EXPECT_EQ(choice.describe(), "2 of 5, by zero-shot accuracy on gray pictures");
}

TEST_F(Slots, PermutedSlotsPermuteTheChoice) {
  const SlotChoice before = choose(2);
  ASSERT_NE(before.accuracy[0], before.accuracy[1]) << "a tie would go to the lower slot";
  model.order = {4, 3, 2, 1, 0};
  const SlotChoice after = choose(2);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(after.slots[i], kSlots - 1 - before.slots[i]);
  EXPECT_EQ(after.accuracy, before.accuracy);
}

TEST_F(Slots, RejectsModelsWithoutSlots) {
  const auto count = [&] { return error_of([&] { count_slots(model, "--slots"); }); };
  EXPECT_EQ(count(), "no error");
  EXPECT_EQ(error_of([&] { choose(6); }), "--slots top:6: this model has 5 slots");
  model.text_slots = 3;
  EXPECT_EQ(count(),
            "--slots: this model's towers output different slots, 5 of width 4 for images and 3 of width 4 for texts");
  model.slots = false;
  EXPECT_EQ(count(),
            "--slots: the read-out of this model's image tower outputs no slots: take a model whose towers both read out "
            "by slots, as sparo does");
  model.text_tower = false;
  EXPECT_EQ(count(), "--slots: slots of images are compared with those of texts, but this model has no text tower");
}

TEST_F(Slots, RejectsSegmentationThroughSlots) {
  EXPECT_EQ(error_of([&] { run("segmentation", SlotEmbedder(model, {1})); }),
            "--slots changes the embeddings of whole images, not those of patches: measure segmentation without it");
}

TEST_F(Slots, ListReadsBackAsWritten) {
  const SlotChoice choice{.slots = {3, 0}, .accuracy = {0.75, 1.0 / 3}, .of = 5, .model = "0123", .data = "x"};
  write_slots(path("slots.json"), choice);
  const SlotChoice read = read_slots(path("slots.json"), 5, "0123");
  EXPECT_EQ(read.slots, choice.slots);
  EXPECT_EQ(read.accuracy, choice.accuracy);
  EXPECT_EQ(read.describe(), "2 of 5, by zero-shot accuracy on x");
  EXPECT_EQ(read_slots(write("own.json", "{\"slots\": [2]}"), 5, "0123").describe(), "1 of 5");
}

TEST_F(Slots, RejectsWrongLists) {
  const auto error = [&](const std::string& text) {
    const std::string file = write("slots.json", text);
    const std::string message = error_of([&] { read_slots(file, 5, "0123"); });
    return message.starts_with(file) ? message.substr(file.size()) : message;
  };
  EXPECT_EQ(error("3, 4"), ": this is not a list of slots: expected JSON such as {\"slots\": [3, 17, 5]}");
  EXPECT_EQ(error("{\"slots\": \"3\"}"), ": this is not a list of slots: expected JSON such as {\"slots\": [3, 17, 5]}");
  EXPECT_EQ(error("{\"slots\": []}"), ": `slots` is empty: nothing would be left to compare");
  EXPECT_EQ(error("{\"slots\": [1, 2, 1]}"), ": slot 1 is listed twice");
  EXPECT_EQ(error("{\"slots\": [-1]}"), ": slot -1 is below 0");
  EXPECT_EQ(error("{\"slots\": [5]}"), ": it lists slot 5, but this model's slots are 0 to 4");
  EXPECT_EQ(error("{\"slots\": [1], \"of\": 64}"),
            ": its slots were chosen from 64, but this model has 5: choose them again with --slots top:1");
  EXPECT_EQ(error("{\"slots\": [1, 2], \"of\": 5, \"model\": \"4567\"}"),
            ": its slots belong to another model (weights 4567, here 0123): choose them again with --slots top:2, or remove "
            "`model` from the file to use them anyway");
}

TEST_F(Slots, FingerprintChangesWithAnyWeight) {
  std::map<std::string, at::Tensor> weights = {{"a", at::ones({3})}, {"b", at::ones({2})}};
  const std::string before = weights_fingerprint(weights);
  EXPECT_EQ(weights_fingerprint({{"b", at::ones({2})}, {"a", at::ones({3})}}), before);
  weights["b"][1] = 2;
  EXPECT_NE(weights_fingerprint(weights), before);
}

TEST_F(Slots, TakesClassesTemplatesAndDataFromSuiteAndRun) {
  SuiteSettings suite;
  suite.tasks = resolve_tasks(
      {task_of("hard_negatives"), task_of("{name: zero_shot, templates: [\"the {}\"], classes: [x]}")},
      "tasks");
  suite.source = task_of("{name: shapes, split: test}");
  const config::Node run = config::parse_yaml("data: {validation: {name: shapes, split: validation}}", "run.yaml");
  const SlotSettings of_run = slot_settings("top:3", suite, run);
  EXPECT_EQ(of_run.top, 3);
  EXPECT_EQ(of_run.templates, (TextList{"the {}"}));
  EXPECT_EQ(of_run.classes, (TextList{"x"}));
  EXPECT_EQ(of_run.data.source->settings.find("split")->text(), "validation");
  const config::Node none = config::Node::map();
  EXPECT_EQ(slot_settings("top:3", suite, none).data.source->settings.find("split")->text(), "test");
  const SlotSettings own =
      slot_settings("{top: 2, source: {name: shapes, split: train}, templates: [\"{}\"]}", suite, run);
  EXPECT_EQ(own.data.source->settings.find("split")->text(), "train");
  EXPECT_EQ(own.templates, (TextList{"{}"}));
  suite.tasks.clear();
  EXPECT_EQ(slot_settings("top:3", suite, run).templates, (TextList{"a photo of a {}."}));
  suite.source = std::nullopt;
  const auto error = [&](const std::string& option) { return error_of([&] { slot_settings(option, suite, none); }); };
  EXPECT_EQ(error("top:3"),
            "--slots top:3: there is no data to choose them on: name some, --slots '{top: 32, source: {name: shapes, "
            "split: validation}}'");
  EXPECT_EQ(error("top:0"), "--slots top:0: expected top: and a number above 0, say top:32");
  EXPECT_EQ(error("top:3x"), "--slots top:3x: expected top: and a number above 0, say top:32");
  EXPECT_EQ(error("{source: shapes}"), "--slots:1: top: is missing: give the number of slots to keep, such as 32");
  EXPECT_EQ(error("{top: 2, sorce: shapes}"), "--slots:1: sorce: unknown key: did you mean source?");
}

TEST_F(Slots, TrainsAMaskOnOneSplitAndMeasuresItOnAnother) {
  context.out = folder_.string();
  for (const std::string granularity : {"slot", "dimension"}) {
    const TaskResult result = run(concat("{name: slot_mask, lr: 0.005, granularity: ", granularity, "}"), model);
    const std::map<std::string, double> metrics = by_name(result);
    EXPECT_EQ(result.samples, 40);
    EXPECT_EQ(result.data, "gray pictures (trained on 80 pairs of gray pictures from 100)");
    EXPECT_EQ(metrics.at("parts"), granularity == "slot" ? 5 : 20);
    EXPECT_GT(metrics.at("train_accuracy"), metrics.at("train_accuracy_before"));
    EXPECT_LT(metrics.at("loss_last"), metrics.at("loss_first"));
    // Without the mask, the task hard_negatives must give slot_mask's `accuracy_before`. With the mask, hard_negatives must give
    // slot_mask's `accuracy`.
    EXPECT_DOUBLE_EQ(run("hard_negatives", model).metrics.at(0).second, metrics.at("accuracy_before"));
    const at::Tensor mask = io::load_safetensors(path("slot_mask.safetensors")).tensors.at("mask");
    EXPECT_NEAR(mask.mean().item<double>(), metrics.at("mean_weight"), 1e-6);
    EXPECT_DOUBLE_EQ(run("hard_negatives", MaskEmbedder(model, mask, "")).metrics.at(0).second, metrics.at("accuracy"));
  }
}

TEST_F(Slots, RejectsMaskPartsThatDoNotFit) {
  EXPECT_EQ(error_of([&] { run("{name: slot_mask, slots: 3}", model); }),
            "slot_mask.slots: embeddings of 20 dimensions cannot be split into 3 equal parts");
  EXPECT_EQ(error_of([&] { run("hard_negatives", MaskEmbedder(model, at::ones({3}), "m.safetensors")); }),
            "--slots m.safetensors: a mask of 3 weights does not fit this model's embedding of 20 dimensions");
  model.slots = false;
  EXPECT_EQ(error_of([&] { run("slot_mask", model); }),
            "slot_mask: this model's embedding does not consist of slots: set slots to a number of equal parts, or "
            "granularity to dimension");
  EXPECT_EQ(run("{name: slot_mask, slots: 4}", model).metrics.at(6), (Metric("parts", 4)));
}

TEST_F(Slots, MaskOfChosenSlotsHasOneWeightPerSlot) {
  EXPECT_EQ(run("slot_mask", SlotEmbedder(model, {4, 0, 2})).metrics.at(6).second, 3);
}

TEST_F(Slots, SheetsShowTheSlotsThatAgreeMost) {
  context.images = true;
  const TaskResult result = run("{name: slots, samples: 2, per_sample: 3}", model);
  const nlohmann::json sheets = sheets_of(result, "Slots");
  ASSERT_EQ(sheets.size(), 2U);
  const nlohmann::json images = sheets[1].at("images");
  EXPECT_EQ(images[0].at("src"), gray_source(20)) << "examples are spread over the data";
  const at::Tensor pixels = at::full({1, 3, 16, 16}, 20, at::kByte);
  const at::Tensor cosines = at::cosine_similarity(model.encode_images(pixels, {.slots = true}).slots[0],
                                                   model.encode_texts({"right 20"}, {.slots = true}).slots[0], 1);
  const at::Tensor order = std::get<1>(cosines.sort(0, true));
  const at::Tensor attention = model.encode_images(pixels, {.attention = true}).attention[0];
  ASSERT_EQ(images.size(), 4U) << "the image, and its map for each of three slots";
  for (std::int64_t i = 0; i < 3; ++i) {
    const nlohmann::json& image = images[static_cast<std::size_t>(1 + i)];
    const auto slot = order[i].item<std::int64_t>();
    EXPECT_EQ(image.at("caption"), concat("slot ", slot, " \u00b7 ", fixed(cosines[slot].item<double>(), 2)));
    const nlohmann::json& heat = image.at("heat");
    EXPECT_EQ(heat.at("rows").get<int>() * heat.at("columns").get<int>(), 4);
    for (std::size_t p = 0; p < 4; ++p) {
      const double expected = attention[slot][static_cast<std::int64_t>(p)].item<double>();
      EXPECT_NEAR(heat.at("values")[p].get<double>(), expected, 1e-3 * std::abs(expected)) << "four digits";
    }
    ASSERT_EQ(image.at("tokens").size(), 2U) << "padding is not shown";
    EXPECT_EQ(image.at("tokens")[0][0], " #7");
    EXPECT_EQ(image.at("tokens")[1][0], " #8");
  }
}

TEST_F(Slots, SheetsShowTheNamedOrChosenSlots) {
  context.images = true;
  const auto shown = [&](const std::string& yaml) {
    const TaskResult result = run(yaml, model);
    std::vector<std::string> slots;
    const nlohmann::json images = sheets_of(result, "Slots").at(0).at("images");
    for (const auto& image : images)
      if (image.contains("caption")) slots.push_back(image["caption"].get<std::string>().substr(0, 6));
    return slots;
  };
  EXPECT_EQ(shown("{name: slots, slots: [4, 1]}"), (std::vector<std::string>{"slot 4", "slot 1"}));
  EXPECT_EQ(error_of([&] { shown("{name: slots, slots: [5]}"); }),
            "slots.slots: slot 5: this model's slots are 0 to 4");
  context.slots = {2};
  EXPECT_EQ(shown("slots"), std::vector<std::string>{"slot 2"});
}

TEST_F(Slots, SheetsNeedAttention) {
  model.attention = false;
  EXPECT_EQ(error_of([&] { run("slots", model); }),
            "slots: this model's read-outs output no slots with attention: take a model whose towers both read out by "
            "slots, as sparo does");
}

}  // namespace
}  // namespace tessera
