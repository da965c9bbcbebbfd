// Tests which samples an epoch holds, for several sources and numbers of processes and threads, with corrupt samples, and after a restart.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/formats/column_file.h"
#include "src/data/sources/mixture.h"
#include "src/data/sources/tables.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/test_name.h"
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

// Returns samples that share one tiny image. Each caption holds the sample's key and the caption's number within the sample.
std::vector<Sample> numbered(std::int64_t count, const std::string& prefix = "") {
  static const std::string image = test::encode(test::noise(4, 4, 1), ".png");
  std::vector<Sample> out;
  for (std::int64_t i = 0; i < count; ++i) {
    Sample sample;
    sample.key = prefix + std::to_string(i);
    sample.encoded = image;
    for (std::int64_t c = 0; c <= i % 3; ++c) sample.captions.push_back(sample.key + "/" + std::to_string(c));
    out.push_back(std::move(sample));
  }
  return out;
}

constexpr std::int64_t kBatch = 4;

/// Returns the source for a value of `Case::source`.
std::shared_ptr<const IndexedSource> source_named(const std::string& name) {
  if (name == "plain rows" || name == "damaged rows") {
    const std::string files = test_data(name == "plain rows" ? "parquet/plain-*.parquet" : "parquet/damaged.parquet");
    ParquetSettings settings(PathList{{files}});
    settings.caption_keys = {"caption", "texts"};
    return make_parquet(settings);
  }
  std::vector<Sample> samples = numbered(61);
  if (name == "corrupt")
    for (std::size_t i = 7; i < samples.size(); i += 10) samples[i].encoded = "junk";
  return std::make_shared<MemorySource>(std::move(samples));
}

struct Case {
  int ranks = 1;
  std::int64_t threads = 1;
  std::string source;
  std::string captions;

  bool has_bad_samples() const { return source == "corrupt" || source == "damaged rows"; }
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.ranks << " ranks, " << c.threads << " threads, " << c.captions << ", " << c.source;
}

class Epochs : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().source.ends_with("rows") && !can_read_columns()) GTEST_SKIP() << "built without Arrow";
    source_ = source_named(GetParam().source);
  }

  Loader loader(int rank, int ranks, std::uint64_t seed = 5) const {
    const LoaderSettings settings =
        loader_settings(concat("{batch_size: ", kBatch, ", threads: ", GetParam().threads, ", caption_choice: ",
                               GetParam().captions, ", max_bad_share: 1}"));
    return Loader(source_, std::make_shared<ByteTokenizer>(), {.image_size = 2}, settings, {}, seed, {rank, ranks});
  }

  // Returns the keys of a batch's samples, or their captions if the setting `captions` is `all`.
  std::vector<std::string> samples_of(const Batch& batch) const {
    if (GetParam().captions != "all") return batch.keys;
    std::vector<std::string> out;
    const TowerInput& text = batch.texts.at("caption");
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      const auto* ids = text.ids[i].const_data_ptr<std::int64_t>();
      out.emplace_back(ids, std::find(ids, ids + text.ids.size(1), 0));
    }
    return out;
  }

  // Returns the samples of one rank's remaining batches of this epoch.
  std::vector<std::string> rest_of_epoch(Loader& loader, std::int64_t epoch) const {
    std::vector<std::string> out;
    while (loader.position().epoch == epoch) {
      const Batch batch = loader.next();
      if (loader.epoch() != epoch) break;  // only bad samples were left
      for (std::string& name : samples_of(batch)) out.push_back(std::move(name));
    }
    return out;
  }

  // Returns all keys (or all captions) that an epoch may return.
  std::set<std::string> universe() const {
    std::set<std::string> out;
    for (std::int64_t i = 0; i < source_->size(); ++i)
      sample_error_of([&] {
        const Sample sample = source_->get(i);
        decode_image(sample.encoded);
        if (GetParam().captions == "all")
          out.insert(sample.captions.begin(), sample.captions.end());
        else
          out.insert(sample.key);
      });
    return out;
  }

  void expect_each_once(const std::vector<std::string>& samples, std::size_t at_most_missing) const {
    const std::set<std::string> all = universe();
    std::set<std::string> seen;
    for (const std::string& name : samples) {
      EXPECT_TRUE(all.contains(name)) << name;
      EXPECT_TRUE(seen.insert(name).second) << name << " came twice";
    }
    EXPECT_GE(seen.size() + at_most_missing, all.size());
  }

  // Returns how many samples an epoch may leave out. At most ranks - 1 samples are left out because all ranks get the same number of
  // samples. At most kBatch - 1 samples are left out on each rank because all batches are full.
  std::size_t remainder() const { return static_cast<std::size_t>(GetParam().ranks * kBatch - 1); }

  std::shared_ptr<const IndexedSource> source_;
};

TEST_P(Epochs, HoldEachSampleOnceInADifferentOrder) {
  const int ranks = GetParam().ranks;
  std::set<std::vector<std::string>> epochs;
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < ranks; ++rank) loaders.emplace_back(new Loader(loader(rank, ranks)));
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::string> all;
    for (const auto& each : loaders) {
      each->seek({epoch, 0});
      for (std::string& name : rest_of_epoch(*each, epoch)) all.push_back(std::move(name));
    }
    expect_each_once(all, remainder());
    epochs.insert(all);
  }
  EXPECT_EQ(epochs.size(), 2U);
}

TEST_P(Epochs, RepeatExactlyOnlyWithTheSameSeed) {
  Loader a = loader(0, GetParam().ranks), b = loader(0, GetParam().ranks), c = loader(0, GetParam().ranks, 6);
  bool differs = false;
  for (int i = 0; i < 20; ++i) {
    const auto expected = samples_of(a.next());
    EXPECT_EQ(samples_of(b.next()), expected) << i;
    differs = differs || samples_of(c.next()) != expected;
  }
  EXPECT_TRUE(differs);
}

TEST_P(Epochs, ResumeWithExactlyTheRemainingSamplesOnAnyNumberOfRanks) {
  const int ranks = GetParam().ranks;
  // The epoch must not end within these steps, because the resumed loaders return its remaining samples.
  const int steps = std::ssize(universe()) / (ranks * kBatch) > 2 ? 2 : 1;
  std::vector<std::string> before;
  std::vector<std::unique_ptr<Loader>> first;
  for (int rank = 0; rank < ranks; ++rank) {
    first.emplace_back(new Loader(loader(rank, ranks)));
    for (int step = 0; step < steps; ++step)
      for (std::string& name : samples_of(first.back()->next())) before.push_back(std::move(name));
  }
  const DataPosition position = first[0]->position();
  // With bad samples, ranks reach different positions. With the same number of ranks, each rank resumes at its own position. With another
  // number, all ranks resume at the position of rank 0, which is exact only without bad samples.
  for (int others = 1; others <= 4; ++others) {
    if (GetParam().has_bad_samples() && others != ranks) continue;
    std::vector<std::string> all = before;
    for (int rank = 0; rank < others; ++rank) {
      Loader resumed = loader(rank, others);
      resumed.seek(others == ranks ? first[static_cast<std::size_t>(rank)]->position() : position);
      for (std::string& name : rest_of_epoch(resumed, 0)) all.push_back(std::move(name));
    }
    SCOPED_TRACE(others);
    expect_each_once(all, static_cast<std::size_t>(others * kBatch - 1 + ranks - 1));
  }
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* captions : {"random", "all"}) {
    for (int ranks : {1, 2, 3, 4})
      for (std::int64_t threads : {1, 2, 5})
        for (const char* source : {"sound", "corrupt"}) out.push_back({ranks, threads, source, captions});
    for (int ranks : {1, 4}) out.push_back({ranks, 3, "plain rows", captions});
  }
  out.push_back({1, 3, "damaged rows", "random"});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Any, Epochs, testing::ValuesIn(cases()), test_name<Case>);

std::shared_ptr<Mixture> two_sources(MixtureMode mode) {
  return std::make_shared<Mixture>(
      mode, std::vector<Mixture::Component>{{"a", std::make_shared<MemorySource>(numbered(12)), 1.0},
                                            {"b", std::make_shared<MemorySource>(numbered(9)), 1.0}});
}

Loader of_all_captions(std::shared_ptr<const Source> source, std::int64_t batch_size, const Needs& needs = {}) {
  const LoaderSettings settings = loader_settings(concat("{caption_choice: all, batch_size: ", batch_size, "}"));
  return Loader(std::move(source), std::make_shared<ByteTokenizer>(), {.image_size = 2}, settings, needs, 1);
}

// 12 samples have 4 * (1 + 2 + 3) = 24 captions, and 9 samples have 18.
TEST(AllCaptions, AreCountedForEachSourceOfAMixture) {
  EXPECT_EQ(of_all_captions(two_sources(MixtureMode::concat), 6).batches_per_epoch(), 42 / 6);
  Loader sequential = of_all_captions(two_sources(MixtureMode::sequential), 6);
  EXPECT_EQ(sequential.batches_per_epoch(), 24 / 6 + 18 / 6);
  std::map<std::string, int> batches;
  for (int i = 0; i < 7; ++i) {
    sequential.next();
    ++batches[sequential.source_label()];
  }
  EXPECT_EQ(batches, (std::map<std::string, int>{{"a", 4}, {"b", 3}}));
  Loader accumulate = of_all_captions(two_sources(MixtureMode::accumulate), 6);
  EXPECT_EQ(accumulate.batches_per_epoch(), 2 * 24 / 6);
}

TEST(AllCaptions, CaptionsOfOneImageShareItsGroup) {
  Needs needs;
  needs.duplicates = true;
  std::vector<Sample> samples = numbered(3);
  for (std::size_t i = 0; i < 3; ++i) samples[i].encoded = test::encode(test::noise(4, 4, i), ".png");
  const Batch batch = of_all_captions(std::make_shared<MemorySource>(samples), 6, needs).next();
  std::map<std::string, std::set<std::int64_t>> ids;
  std::set<std::int64_t> texts;
  for (std::int64_t i = 0; i < 6; ++i) {
    ids[batch.keys[static_cast<std::size_t>(i)]].insert(batch.duplicates.image_group[i].item<std::int64_t>());
    texts.insert(batch.duplicates.caption_group[i].item<std::int64_t>());
  }
  for (const auto& [key, of_key] : ids) EXPECT_EQ(of_key.size(), 1U) << key;
  EXPECT_EQ(ids.size(), 3U);
  EXPECT_EQ(texts.size(), 6U);
}

TEST(AllCaptions, BlankCaptionsAndSamplesWithoutCaptionsAreCountedAsBad) {
  std::vector<Sample> samples = numbered(9);  // 18 captions
  samples[2].captions[1] = " ";
  samples[5].captions.clear();  // this sample had three captions
  Loader loader = of_all_captions(std::make_shared<MemorySource>(samples), 14);
  EXPECT_EQ(loader.batches_per_epoch(), 1);
  loader.next();
  loader.next();
  EXPECT_GE(loader.statistics().skipped.at("no_caption"), 2);
}

}  // namespace
}  // namespace tessera
