#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/shapes/shapes.h"
#include "src/data/sources/mixture.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/test_name.h"

namespace tessera {
namespace {

using Keys = std::vector<std::string>;

constexpr MixtureMode kModes[] = {MixtureMode::accumulate, MixtureMode::sequential, MixtureMode::concat,
                                  MixtureMode::weighted};

Mixture::Component component(const std::string& label, std::vector<Sample> samples, double weight = 1.0) {
  return {label, std::make_shared<MemorySource>(std::move(samples)), weight};
}

// Returns components for three shards and batches of five. In every mode, all batches are full and all shards have equally many batches.
std::vector<Mixture::Component> usual_components(MixtureMode mode) {
  const bool weighted = mode == MixtureMode::weighted;
  return {component("a", make_samples(30), weighted ? 0.5 : 1.0),
          component("b", make_samples(15), weighted ? 2.0 : 1.0),
          component("c", make_samples(60), weighted ? 1.25 : 1.0)};
}

LoaderSettings plain_settings(std::int64_t batch_size, std::int64_t threads = 2) {
  return loader_settings(
      concat("{batch_size: ", batch_size, ", threads: ", threads, ", augmentation: {scale: [0.3, 1]}}"));
}

Loader load(std::shared_ptr<const Source> source, const LoaderSettings& settings, const RankSlice& shard = {},
            std::uint64_t seed = 1) {
  return Loader(std::move(source), std::make_shared<ByteTokenizer>(), {.image_size = 16}, settings, {}, seed, shard);
}

Loader load(MixtureMode mode, const LoaderSettings& settings, const RankSlice& shard = {}, std::uint64_t seed = 1) {
  return load(std::make_shared<Mixture>(mode, usual_components(mode)), settings, shard, seed);
}

std::vector<Batch> take(Loader& loader, std::int64_t count) {
  std::vector<Batch> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(loader.next());
  return out;
}

Keys keys_of(const std::vector<Batch>& batches) {
  Keys out;
  for (const Batch& batch : batches) out.insert(out.end(), batch.keys.begin(), batch.keys.end());
  return out;
}

std::string label_of(const std::string& key) {
  return key.substr(0, key.find(':'));
}

std::map<std::string, int> counted(const Keys& keys) {
  std::map<std::string, int> out;
  for (const std::string& key : keys) ++out[key];
  return out;
}

// Returns the keys of each epoch, shard by shard.
std::vector<Keys> epochs_of(MixtureMode mode, int shards, std::int64_t threads, int epochs, std::uint64_t seed = 1) {
  std::vector<Keys> out(static_cast<std::size_t>(epochs));
  for (int index = 0; index < shards; ++index) {
    Loader loader = load(mode, plain_settings(5, threads), {index, shards}, seed);
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const Keys keys = keys_of(take(loader, loader.batches_per_epoch()));
      out[static_cast<std::size_t>(epoch)].insert(out[static_cast<std::size_t>(epoch)].end(), keys.begin(), keys.end());
      EXPECT_EQ(loader.epoch(), epoch);
      EXPECT_EQ(loader.position().epoch, epoch + 1);
      EXPECT_EQ(loader.position().cursor, 0);
    }
  }
  return out;
}

struct Layout {
  int shards;
  std::int64_t threads;
};
void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.shards << " shards, " << layout.threads << " threads";
}

class MixtureLoader : public ::testing::TestWithParam<Layout> {
 protected:
  std::vector<Keys> epochs(MixtureMode mode, int count) const {
    return epochs_of(mode, GetParam().shards, GetParam().threads, count);
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, MixtureLoader,
                         ::testing::Values(Layout{1, 1}, Layout{1, 4}, Layout{3, 1}, Layout{3, 4}),
                         test_name<Layout>);

TEST_P(MixtureLoader, ConcatAndSequentialReturnEachSampleOncePerEpoch) {
  for (const MixtureMode mode : {MixtureMode::concat, MixtureMode::sequential})
    for (const Keys& epoch : epochs(mode, 3)) {
      EXPECT_EQ(epoch.size(), 105U);
      EXPECT_EQ(counted(epoch).size(), 105U);
    }
}

// An epoch holds 15 samples of the first source (30 x 0.5), 30 of the second (15 x 2) and 75 of the third (60 x 1.25).
TEST_P(MixtureLoader, WeightsSetHowOftenAnEpochHoldsASample) {
  std::map<std::string, int> total;
  const std::vector<Keys> all = epochs(MixtureMode::weighted, 4);
  for (const Keys& epoch : all) {
    ASSERT_EQ(epoch.size(), 120U);
    std::map<std::string, int> of_source;
    for (const auto& [key, count] : counted(epoch)) {
      const std::string source = label_of(key);
      of_source[source] += count;
      total[key] += count;
      EXPECT_GE(count, source == "b" ? 2 : 1) << key;
      EXPECT_LE(count, source == "a" ? 1 : 2) << key;
    }
    EXPECT_EQ(of_source, (std::map<std::string, int>{{"a", 15}, {"b", 30}, {"c", 75}}));
  }
  EXPECT_EQ(total.size(), 105U);
  const std::map<std::string, int> expected{{"a", 2}, {"b", 8}, {"c", 5}};
  for (const auto& [key, count] : total) EXPECT_EQ(count, expected.at(label_of(key))) << key;
}

// An epoch holds the largest source once. The smaller sources repeat, each time in a new order.
TEST_P(MixtureLoader, AccumulateReturnsABatchOfEachSourceInTurn) {
  const std::map<std::string, int> expected{{"a", 2}, {"b", 4}, {"c", 1}};
  for (const Keys& epoch : epochs(MixtureMode::accumulate, 2)) {
    ASSERT_EQ(epoch.size(), 180U);
    for (std::size_t i = 0; i < epoch.size(); ++i) EXPECT_EQ(label_of(epoch[i]), Keys({"a", "b", "c"})[i / 5 % 3]) << i;
    for (const auto& [key, count] : counted(epoch)) EXPECT_EQ(count, expected.at(label_of(key))) << key;
  }
}

TEST_P(MixtureLoader, SequentialBatchesHaveOneSourceThatIsTheSameOnAllShards) {
  std::set<Keys> orders;
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int index = 0; index < GetParam().shards; ++index)
    loaders.emplace_back(
        new Loader(load(MixtureMode::sequential, plain_settings(5, GetParam().threads), {index, GetParam().shards})));
  for (int epoch = 0; epoch < 6; ++epoch) {
    Keys order;
    for (std::int64_t step = 0; step < loaders[0]->batches_per_epoch(); ++step)
      for (const auto& loader : loaders) {
        const Batch batch = loader->next();
        for (const std::string& key : batch.keys) EXPECT_EQ(label_of(key), loader->source_label());
        EXPECT_EQ(loader->source_label(), loaders[0]->source_label());
        EXPECT_EQ(loader->segment(), loaders[0]->segment());
        if (order.empty() || order.back() != loader->source_label()) order.push_back(loader->source_label());
      }
    EXPECT_EQ(order.size(), 3U);
    EXPECT_EQ(std::set<std::string>(order.begin(), order.end()).size(), 3U);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 1U) << "epochs must have different orders";
}

TEST(Mixture, OrdersRepeatWithTheSeedAndDifferBetweenEpochs) {
  for (const MixtureMode mode : kModes) {
    const auto first = epochs_of(mode, 1, 2, 2), again = epochs_of(mode, 1, 3, 2), other = epochs_of(mode, 1, 2, 2, 7);
    EXPECT_EQ(first, again);
    EXPECT_NE(first, other);
    EXPECT_NE(first[0], first[1]);
  }
}

TEST(Mixture, ConcatIsOneBigSource) {
  std::vector<Sample> all;
  std::vector<Mixture::Component> components = usual_components(MixtureMode::concat);
  for (const Mixture::Component& each : components)
    for (std::int64_t i = 0; i < each.source->size(); ++i) {
      all.push_back(each.source->get(i));
      all.back().key = each.label + ":" + all.back().key;
      all.back().label = -1;
    }
  Loader mixed = load(std::make_shared<Mixture>(MixtureMode::concat, components), plain_settings(10));
  Loader single = load(std::make_shared<MemorySource>(all), plain_settings(10));
  for (int i = 0; i < 25; ++i) EXPECT_TRUE(same_batch(mixed.next(), single.next())) << i;
}

TEST(Mixture, ARepeatedSampleIsCroppedDifferently) {
  auto source = std::make_shared<Mixture>(MixtureMode::weighted, std::vector{component("a", make_samples(10), 3.0)});
  Loader loader = load(source, plain_settings(30));
  const Batch batch = loader.next();
  std::map<std::string, std::vector<at::Tensor>> views;
  for (std::size_t i = 0; i < 30; ++i)
    views[batch.keys[i]].push_back(batch.images.at("image").pixels[static_cast<std::int64_t>(i)]);
  ASSERT_EQ(views.size(), 10U);
  for (const auto& [key, images] : views) {
    ASSERT_EQ(images.size(), 3U);
    EXPECT_FALSE(at::equal(images[0], images[1])) << key;
    EXPECT_FALSE(at::equal(images[1], images[2])) << key;
  }
}

TEST(Mixture, WithoutShuffleSamplesKeepTheListedOrder) {
  LoaderSettings settings = plain_settings(5);
  settings.shuffle = false;
  const auto first_batches = [&](MixtureMode mode, std::vector<Mixture::Component> components, std::int64_t count) {
    Loader loader = load(std::make_shared<Mixture>(mode, std::move(components)), settings);
    return keys_of(take(loader, count));
  };
  const auto two = [] { return std::vector{component("a", make_samples(6)), component("b", make_samples(5))}; };
  EXPECT_EQ(first_batches(MixtureMode::concat, two(), 2),
            (Keys{"a:0", "a:1", "a:2", "a:3", "a:4", "a:5", "b:0", "b:1", "b:2", "b:3"}));
  EXPECT_EQ(
      first_batches(MixtureMode::sequential, two(), 3),
      (Keys{"a:0", "a:1", "a:2", "a:3", "a:4", "b:0", "b:1", "b:2", "b:3", "b:4", "a:0", "a:1", "a:2", "a:3", "a:4"}));
  // An epoch takes six samples of each source, because the larger source has six. The sixth samples, a:5 and the second b:0, are left out,
  // because they would not fill a batch.
  EXPECT_EQ(first_batches(MixtureMode::accumulate, two(), 4),
            (Keys{"a:0", "a:1", "a:2", "a:3", "a:4", "b:0", "b:1", "b:2", "b:3", "b:4",
                  "a:0", "a:1", "a:2", "a:3", "a:4", "b:1", "b:2", "b:3", "b:4", "b:0"}));
  EXPECT_EQ(
      first_batches(MixtureMode::weighted, {component("a", make_samples(4), 0.5), component("b", make_samples(3))}, 2),
      (Keys{"a:0", "a:1", "b:0", "b:1", "b:2", "a:2", "a:3", "b:0", "b:1", "b:2"}));
}

// ---- resuming ------------------------------------------------------------------------------------------------------

std::vector<Sample> with_bad(std::int64_t count, std::initializer_list<std::size_t> bad) {
  std::vector<Sample> samples = make_samples(count);
  for (const std::size_t i : bad) samples[i].encoded = "junk";
  return samples;
}

std::shared_ptr<Mixture> damaged(MixtureMode mode) {
  const bool weighted = mode == MixtureMode::weighted;
  return std::make_shared<Mixture>(
      mode, std::vector{component("a", with_bad(31, {3, 4, 20}), weighted ? 0.7 : 1.0),
                        component("b", with_bad(17, {0}), weighted ? 1.5 : 1.0), component("c", make_samples(40))});
}

TEST(Mixture, ResumesAtTheSameSampleAnywhere) {
  for (const MixtureMode mode : kModes)
    for (const RankSlice shard : {RankSlice{0, 1}, RankSlice{1, 2}}) {
      SCOPED_TRACE(static_cast<int>(mode));
      expect_resumes([&](std::int64_t threads) { return load(damaged(mode), plain_settings(7, threads), shard); }, 36, 3, 4);
    }
}

// One process returns some batches of 15 samples, then three processes return the rest of the epoch in batches of 5.
TEST(Mixture, ResumesAtTheSamePositionWithAnotherNumberOfShards) {
  for (const MixtureMode mode : kModes) {
    Loader whole = load(mode, plain_settings(15)), rest = load(mode, plain_settings(15));
    const std::int64_t lanes = whole.batches_per_update(), before = 2 * lanes;
    const std::int64_t after = whole.batches_per_epoch() - before;
    take(whole, before);
    rest.seek(whole.position());
    std::vector<std::unique_ptr<Loader>> shards;
    for (int index = 0; index < 3; ++index) {
      shards.emplace_back(new Loader(load(mode, plain_settings(5), {index, 3})));
      shards.back()->seek(whole.position());
    }
    for (std::int64_t step = 0; step < after; ++step) {
      const Keys expected = rest.next().keys;
      Keys got;
      for (const auto& loader : shards) {
        const Keys keys = loader->next().keys;
        got.insert(got.end(), keys.begin(), keys.end());
        EXPECT_EQ(loader->source_label(), rest.source_label());
      }
      EXPECT_EQ(counted(got), counted(expected)) << static_cast<int>(mode) << " " << step;
    }
    EXPECT_EQ(rest.position().epoch, 1);
    for (const auto& loader : shards) EXPECT_EQ(loader->position().epoch, 1);
  }
}

// ---- corrupt samples -----------------------------------------------------------------------------------------------

TEST(Mixture, CorruptSamplesAreReplacedFromTheirOwnSource) {
  Loader accumulate = load(damaged(MixtureMode::accumulate), plain_settings(8));
  for (int i = 0; i < 30; ++i) {
    const Batch batch = accumulate.next();
    EXPECT_EQ(batch.size(), 8);
    for (const std::string& key : batch.keys) {
      EXPECT_EQ(label_of(key), accumulate.source_label());
      EXPECT_FALSE(std::set<std::string>({"a:3", "a:4", "a:20", "b:0"}).contains(key));
    }
  }
  Loader sequential = load(damaged(MixtureMode::sequential), plain_settings(4));
  std::map<std::string, int> batches;
  do {
    const Batch batch = sequential.next();
    ++batches[sequential.source_label()];
    for (const std::string& key : batch.keys) EXPECT_EQ(label_of(key), sequential.source_label());
  } while (sequential.position().epoch == 0);
  EXPECT_EQ(batches, (std::map<std::string, int>{{"a", 7}, {"b", 4}, {"c", 10}}));
}

// A shard is a rank's share of the data. Like the trainer, the test drops a shard's batches while that shard is at an earlier source than
// the other shard.
TEST(Mixture, ShardsWithDifferentSkipsCanReachTheSameSource) {
  const auto source = [] {
    // Without shuffling, shard 1 gets all samples with odd indices, and so all bad samples.
    return std::make_shared<Mixture>(MixtureMode::sequential, std::vector{component("a", with_bad(24, {1, 3, 5, 7})),
                                                                          component("b", make_samples(24))});
  };
  LoaderSettings settings = plain_settings(4);
  settings.shuffle = false;
  settings.max_bad_share = 1;
  Loader first = load(source(), settings, {0, 2}), second = load(source(), settings, {1, 2});
  int dropped = 0;
  for (int step = 0; step < 20; ++step) {
    first.next();
    second.next();
    const std::int64_t last = std::max(first.segment(), second.segment());
    for (Loader* loader : {&first, &second})
      for (; loader->segment() < last; ++dropped) loader->next();
    EXPECT_EQ(first.source_label(), second.source_label());
  }
  EXPECT_EQ(dropped, 4);  // 20 steps are four epochs, each of which drops one batch of `a`
}

TEST(Mixture, TooManyBadSamplesAreReportedWithTheirSource) {
  std::vector<Sample> bad = make_samples(200);
  for (std::size_t i = 0; i < bad.size(); i += 3) bad[i].encoded = "junk";
  Loader loader = load(std::make_shared<Mixture>(MixtureMode::concat, std::vector{component("good", make_samples(2000)),
                                                                                  component("web", std::move(bad))}),
                       plain_settings(10));
  const std::string error = error_of([&] {
    for (int i = 0; i < 220; ++i) loader.next();
  });
  EXPECT_EQ(error.find("source web (memory, 200 samples): "), 0U) << error;
  EXPECT_NE(error.find(" samples cannot be used ("), std::string::npos) << error;
  EXPECT_NE(error.find("; the first: sample web:"), std::string::npos) << error;
}

TEST(Mixture, ASourceWithoutAReadableBatchIsAnError) {
  for (const MixtureMode mode : {MixtureMode::sequential, MixtureMode::accumulate}) {
    auto source = std::make_shared<Mixture>(
        mode, std::vector{component("a", make_samples(12)), component("b", with_bad(12, {0, 1, 2, 3, 4}))});
    Loader loader = load(source, plain_settings(10));
    const std::string error = error_of([&] { take(loader, 4); });
    EXPECT_EQ(error.find("source b (memory, 12 samples): returned only "), 0U) << error;
    EXPECT_NE(error.find(" readable samples, fewer than one batch of 10; skipped: "), std::string::npos) << error;
    EXPECT_NE(error.find("; the first: sample b:"), std::string::npos) << error;
  }
}

// ---- mistakes ------------------------------------------------------------------------------------------------------

TEST(Mixture, ASourceThatLacksAFieldOrABatchIsReported) {
  std::vector<Sample> without = make_samples(20);
  for (Sample& sample : without) sample.captions.clear();
  for (const MixtureMode mode : kModes) {
    auto source =
        std::make_shared<Mixture>(mode, std::vector{component("a", make_samples(20)), component("b", without)});
    EXPECT_EQ(
        error_of([&] { load(source, plain_settings(4)); }),
        "source b (memory, 20 samples): none of the 20 samples checked has all that the objective needs: missing "
        "caption; found image; needed image and caption. Check the source's settings (names of its members or "
        "columns)");
    auto small =
        std::make_shared<Mixture>(mode, std::vector{component("a", make_samples(40)), component("b", make_samples(7))});
    const bool apart = mode == MixtureMode::sequential || mode == MixtureMode::accumulate;
    EXPECT_EQ(error_of([&] {
                load(small, plain_settings(4), {0, 2});
              }),
              apart ? "source b (memory, 7 samples): fewer samples than one batch of 4 for each of 2 processes: set "
                      "batch_size to 3 or less"
                    : "no error");
  }
  auto tiny = std::make_shared<Mixture>(MixtureMode::concat,
                                        std::vector{component("a", make_samples(2)), component("b", make_samples(3))});
  EXPECT_EQ(error_of([&] { load(tiny, plain_settings(6)); }),
            "mixture (concat) of {a: memory, 2 samples; b: memory, 3 samples}: fewer samples than one batch of 6: set "
            "batch_size to 5 or less");
}

TEST(Mixture, ASavedPositionBeyondTheDataIsRefused) {
  Loader loader = load(MixtureMode::accumulate, plain_settings(5));
  EXPECT_EQ(error_of([&] {
              loader.seek({1, 181});
            }),
            "the saved data position is sample 181 of epoch 1, but mixture (accumulate) of {a: memory, 30 samples; b: "
            "memory, 15 samples; c: memory, 60 samples}: the data has changed since; start a new run, or use the data "
            "it was saved with");
}

// ---- the source without a loader -----------------------------------------------------------------------------------

TEST(Mixture, NamesItsSourcesInKeysAndErrors) {
  class Failing : public MemorySource {
   public:
    using MemorySource::MemorySource;
    Sample get(std::int64_t) const override { throw SampleError("truncated", "x.tar: sample 7: cut off"); }
  };
  const Mixture mixture(MixtureMode::weighted,
                        {component("a", make_samples(3), 2.0), {"b", std::make_shared<Failing>(make_samples(2)), 0.5}});
  EXPECT_EQ(mixture.size(), 5);
  EXPECT_EQ(mixture.get(2).key, "a:2");
  EXPECT_EQ(sample_error_of(mixture, 3), "truncated: b: x.tar: sample 7: cut off");
  EXPECT_EQ(mixture.describe(), "mixture (weighted) of {a: memory, 3 samples x 2; b: memory, 2 samples x 0.5}");
}

TEST(Mixture, KeepsClassesOnlyIfAllSourcesShareThem) {
  const auto shapes = [](std::int64_t seed, const std::string& label) {
    ShapesSettings settings{.size = 4, .seed = seed, .label = label};
    return Mixture::Component{concat("s", seed, label), std::make_shared<ShapesSource>(settings)};
  };
  const Mixture same(MixtureMode::concat, {shapes(0, "shape"), shapes(1, "shape")});
  EXPECT_EQ(same.class_names(), same.components()[0].source->class_names());
  EXPECT_EQ(same.background_class(), same.components()[0].source->background_class());
  EXPECT_EQ(same.get(5).label, same.components()[1].source->get(1).label);
  EXPECT_FALSE(same.get(5).mask.empty());
  const Mixture other(MixtureMode::concat, {shapes(0, "shape"), shapes(1, "color")});
  EXPECT_TRUE(other.class_names().empty());
  EXPECT_EQ(other.background_class(), -1);
  const Sample sample = other.get(5);
  EXPECT_EQ(sample.label, -1);
  EXPECT_TRUE(sample.mask.empty());
  ASSERT_FALSE(sample.objects.empty());
  for (const ObjectAnnotation& object : sample.objects) EXPECT_EQ(object.label, -1);
  // Labels without class names are kept only if the mixture has a single source.
  EXPECT_EQ(
      Mixture(MixtureMode::concat, {component("a", make_samples(2)), component("b", make_samples(2))}).get(3).label,
      -1);
  EXPECT_EQ(Mixture(MixtureMode::concat, {component("a", make_samples(2))}).get(1).label, 1);
}

TEST(Mixture, SettingsAreValidatedAndResolved) {
  const auto resolved = [](const std::string& yaml) {
    const config::Node tree = config::parse_yaml(yaml, "a.yaml");
    const auto choice = config::Value<config::ModuleSettings>::read(*tree.find("train"), "data.train", {});
    return sources().resolve(choice, "data.train");
  };
  const config::ModuleSettings full = resolved(
      "train:\n  name: mixture\n  mode: weighted\n  sources:\n    - {source: {name: shapes, size: 8}, weight: 2}\n"
      "    - {label: more, source: {name: shapes, size: 6, seed: 1}}\n");
  const config::Node& second = full.settings.find("sources")->items()[1];
  EXPECT_EQ(second.find("weight")->text(), "1.0");
  EXPECT_EQ(second.find("source")->find("image_size")->text(), "64");
  const auto made = sources().make(full, "data.train");
  EXPECT_EQ(made->size(), 14);
  EXPECT_EQ(indexed(*made).get(8).key.substr(0, 5), "more:");

  const auto error = [&](const std::string& yaml) { return error_of([&] { resolved(yaml); }); };
  const std::string head = "train:\n  name: mixture\n  sources:\n";
  EXPECT_EQ(error("train: {name: mixture}"), "a.yaml:1: data.train.sources: is empty: name at least one source");
  EXPECT_EQ(error(head + "    - {source: shapes}\n    - {source: shapes}\n"),
            "a.yaml:4: data.train.sources: label shapes is used twice: give each source a label of its own");
  EXPECT_EQ(error(head + "    - {source: shapes, weight: 2}\n"),
            "a.yaml:4: data.train.sources: shapes has weight 2, but mode is concat: weights are for mode weighted");
  EXPECT_EQ(error(head + "    - {weight: 1}\n"),
            "a.yaml:4: data.train.sources: number 0 has no source: {source: {name: shapes}}");
  EXPECT_EQ(error(head + "    - {source: {name: mixture, sources: [{source: shapes}]}}\n"),
            "a.yaml:4: data.train.sources: number 0 is a mixture itself: put its sources into this list");
  EXPECT_EQ(error(head + "    - {source: {name: shapes, sise: 3}}\n"),
            "a.yaml:4: data.train.sources[0].source.sise: unknown key: did you mean size?");
  EXPECT_EQ(error(head + "    - {source: shape}\n"),
            "a.yaml:4: data.train.sources[0].source: unknown source shape: did you mean shapes?");
  EXPECT_EQ(error(head + "    - {source: shapes, weight: 0}\n"),
            "a.yaml:4: data.train.sources[0].weight: expected from 1e-06 to 1000, got 0");
  EXPECT_EQ(
      error("train:\n  name: mixture\n  mode: sequental\n  sources: [{source: shapes}]\n"),
      "a.yaml:3: data.train.mode: expected one of accumulate, sequential, concat and weighted, got \"sequental\": "
      "did you mean sequential?");
}

}  // namespace
}  // namespace tessera
