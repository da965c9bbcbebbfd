#include <filesystem>
#include <unistd.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "src/data/image/orientation.h"
#include "src/data/image/patches.h"
#include "src/distributed/agreement.h"
#include "src/evaluation/embedder_views.h"
#include "src/evaluation/rank_embedder.h"
#include "src/evaluation/tasks/pass.h"
#include "tests/distributed/ranks.h"
#include <tessera/base/error.h>
#include <tessera/evaluation/inference.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

void save_small_model(const std::string& path) {
  ModelFile file;
  file.model = config::read<ModelSettings>(config::parse_yaml(
      "image: {encoder: {name: vit, image_size: 16, patch_size: 8, width: 8, layers: 1, heads: 2}}\n"
      "text: {encoder: {name: text_transformer, vocab_size: 20, context_length: 8, width: 8, layers: 1, heads: 2}}\n"
      "preprocessing: {image_size: 16, exif_rotation: true}\n",
      "model.yaml"));
  file.tokenizer = {"wordpiece", config::parse_yaml("{context_length: 8}", "tokenizer.yaml")};
  file.vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nred\nblue\ncircle\n";
  at::manual_seed(3);
  file.weights = DualEncoder(file.model).state_dict();
  save_model_file(path, file);
}

/// Returns the embeddings that rank 0 computes together with the other ranks ("shared") and without them ("alone").
Tensors embed(const ProcessGroup& group, const std::string& path) {
  if (!group.first()) {
    serve_embeddings(group, "cpu");
    return {};
  }
  save_small_model(path);
  const InferenceModel loaded = load_for_inference(path, "cpu");
  const DualEncoderEmbedder whole(loaded.model, loaded.tokenizer);
  const EmbeddingRanks ranks(group);
  ranks.load(path, {});
  const RankEmbedder shared(whole, ranks);
  const at::Tensor pixels = at::randint(0, 256, {7, 3, 16, 16}, at::kByte);
  const std::vector<std::string> texts = {"a red circle", "a", "blue", "a blue circle", "red red red"};
  Tensors out;
  const auto keep = [&](const std::string& name, const TowerFeatures& one, const TowerFeatures& all) {
    out[name + " alone"] = one.global;
    out[name + " shared"] = all.global;
  };
  keep("pictures", whole.encode_images(pixels, {}), shared.encode_images(pixels, {}));
  keep("one picture", whole.encode_images(pixels.narrow(0, 0, 1), {}), shared.encode_images(pixels.narrow(0, 0, 1), {}));
  keep("texts", whole.encode_texts(texts, {}), shared.encode_texts(texts, {}));
  const ViewNeeds patches{.dense = true};
  out["patches alone"] = whole.encode_images(pixels, patches).dense;
  out["patches shared"] = shared.encode_images(pixels, patches).dense;
  // All ranks compute tokens; only rank 0 pools them for the texts.
  const auto pool = std::make_shared<TextConditionedPool>(TextConditionedPoolSettings{}, whole.encode_texts(texts, {}).global.size(1));
  const auto compared = [&](const Embedder& model) {
    const ConditionedEmbedder through(model, pool, std::nullopt, "similarity");
    return through.similarity(through.encode_images(pixels, {}), through.encode_texts(texts, {}));
  };
  out["conditioned alone"] = compared(whole);
  out["conditioned shared"] = compared(shared);
  // With this preprocessing, images keep their aspect ratio.
  Preprocessing own_shapes;
  own_shapes.resize_mode = "naflex";
  own_shapes.patch_size = config::Size(8);
  own_shapes.max_patches = 6;
  const TowerInput sequences = image_batch({at::randint(0, 256, {3, 8, 32}, at::kByte), at::randint(0, 256, {3, 24, 16}, at::kByte),
                                            at::randint(0, 256, {3, 8, 8}, at::kByte)},
                                           own_shapes);
  keep("own shapes", whole.encode_images(sequences, {}), shared.encode_images(sequences, {}));
  // Texts that other ranks embed are counted, too.
  whole.tell_of_cut_texts();
  shared.encode_texts({"a a a a a a a a a", "a", "red red red red red red red red", "a a a a a a a a a", "blue"}, {});
  testing::internal::CaptureStderr();
  whole.tell_of_cut_texts();
  const std::string said = testing::internal::GetCapturedStderr();
  out["counted"] = at::full({1}, said.find("2 of 4 texts are longer") != std::string::npos ? 1 : 0);
  // A batch that no rank can embed is an error, but afterwards the ranks still embed other batches.
  EXPECT_ANY_THROW(shared.encode_images(at::zeros({4, 3, 5, 5}, at::kByte), {}));
  keep("pictures again", whole.encode_images(pixels, {}), shared.encode_images(pixels, {}));
  return out;
}

// Images of different sizes with masks, depths and boxes. Some files are stored turned, some lack a mask or depths, and some are damaged.
class Annotated : public IndexedSource {
 public:
  std::int64_t size() const override { return 23; }
  Sample get(std::int64_t index) const override {
    Sample sample;
    sample.key = std::to_string(index);
    Image image{12 + index % 3, 20, {}};
    for (std::int64_t i = 0; i < 3 * image.height * image.width; ++i)
      image.pixels.push_back(static_cast<std::uint8_t>((i * i + index * 31) % 251));
    for (std::int64_t i = 0; i < image.height * image.width; ++i) {
      if (index % 3 != 0) sample.mask.push_back(static_cast<std::uint8_t>((i + index) % 7));
      if (index % 2 != 0) sample.depth.push_back(1 + 0.1f * static_cast<float>((i * 5 + index) % 40));
    }
    sample.objects = {{.label = 0, .box = {1, 2 + index % 5, 6, 9}, .phrase = "a box"}};
    sample.encoded = index % 6 == 5 ? "not an image" : with_orientation(encode_png(image), index % 4 == 0 ? 6 : 1);
    if (index == 4) sample.mask.pop_back();  // is not of the size of its image
    return sample;
  }
  std::string describe() const override { return "annotated images"; }
};

/// Returns what a pass over the source gives its body on rank 0, with the other ranks ("shared") and without them ("alone").
Tensors read_samples(const ProcessGroup& group, const std::string& path, bool reads_pixels) {
  if (group.first()) save_small_model(path);
  run_on_all_ranks(group, "waiting for the model", [] {});
  const InferenceModel loaded = load_for_inference(path, "cpu");
  const DualEncoderEmbedder whole(loaded.model, loaded.tokenizer);
  EvaluationContext context;
  context.source = std::make_shared<Annotated>();
  context.batch_size = 4;
  if (!group.first()) {
    serve_embeddings(group, whole, context);
    return {};
  }
  Tensors out;
  const auto pass = [&](const std::string& name, const Embedder& embedder, const RankEmbedder* ranks) {
    EvaluationContext own = context;
    own.ranks = ranks;
    Pass all{.embedder = embedder, .context = own, .source = own.source, .reads_pixels = reads_pixels};
    all.order = SourceOrder{.key = "here", .choice = {}};
    TaskResult result;
    std::vector<at::Tensor> numbers, embeddings;
    const auto add = [&](const auto& values, at::ScalarType type) {
      void* const data = const_cast<void*>(static_cast<const void*>(values.data()));
      numbers.push_back(at::full({1}, static_cast<double>(values.size()), at::kDouble));
      numbers.push_back(at::from_blob(data, {std::ssize(values)}, type).to(at::kDouble));
    };
    all.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      embeddings.push_back(features.global);
      for (const EvaluationSample& sample : samples) {
        const Sample& read = sample.sample;
        add(std::vector<std::int64_t>{sample.index, read.image.height, read.image.width}, at::kLong);
        add(read.objects.at(0).box, at::kLong);
        if (!reads_pixels) continue;
        numbers.push_back(sample.pixels.flatten().to(at::kDouble));
        add(sample.mask, at::kByte);
        add(sample.depth, at::kFloat);
      }
    });
    EXPECT_EQ(result.skipped, (std::map<std::string, std::int64_t>{{"bad_image", 3}, {"bad_mask", 1}}));
    out["samples " + name] = at::cat(numbers);
    out["embeddings " + name] = at::cat(embeddings);
  };
  pass("alone", whole, nullptr);
  const EmbeddingRanks ranks(group);
  const RankEmbedder shared(whole, ranks, context.threads);
  pass("shared", shared, &shared);
  return out;
}

class RankEmbedders : public testing::TestWithParam<int> {};

TEST_P(RankEmbedders, MatchOneProcess) {
  const std::string path = (fs::temp_directory_path() / concat("tessera_ranks_", ::getpid(), ".safetensors")).string();
  const auto all = run_ranks(GetParam(), [&](const ProcessGroup& group) { return embed(group, path); });
  fs::remove(path);
  ASSERT_EQ(std::ssize(all), GetParam());
  ASSERT_EQ(all[0].size(), 15U);
  EXPECT_TRUE(all[0].at("counted").item<double>() == 1);
  for (const char* name : {"pictures", "one picture", "texts", "patches", "conditioned", "own shapes", "pictures again"})
    EXPECT_TRUE(at::allclose(all[0].at(std::string(name) + " shared"), all[0].at(std::string(name) + " alone"), 1e-5, 1e-6)) << name;
}

TEST_P(RankEmbedders, ReadTheSamplesOfOneProcess) {
  const std::string path = (fs::temp_directory_path() / concat("tessera_ranks_", ::getpid(), ".safetensors")).string();
  for (const bool reads_pixels : {true, false}) {
    const auto all = run_ranks(GetParam(), [&](const ProcessGroup& group) { return read_samples(group, path, reads_pixels); });
    ASSERT_EQ(all[0].size(), 4U);
    EXPECT_EQ(all[0].at("embeddings alone").size(0), 19);
    EXPECT_TRUE(at::equal(all[0].at("samples shared"), all[0].at("samples alone")));
    EXPECT_TRUE(at::allclose(all[0].at("embeddings shared"), all[0].at("embeddings alone"), 1e-5, 1e-6));
  }
  fs::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RankEmbedders, testing::Values(1, 2, 3));

}  // namespace
}  // namespace tessera
