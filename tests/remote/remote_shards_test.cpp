// Tests tar shards in a store: the same samples as local files, an order by groups of shards, exact resume, streams.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>
#include <zlib.h>

#include <gtest/gtest.h>

#include "src/data/data_fingerprint.h"
#include "src/data/sources/filtered_source.h"
#include "src/data/sources/mixture.h"
#include "src/data/sources/webdataset/shards.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"
#include "src/remote/store.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include "tests/remote/fake_server.h"
#include <tessera/base/log.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

class RemoteShards : public FolderTest {
 protected:
  static constexpr int kShards = 6, kEach = 30;

  RemoteShards() {
    ::setenv("AWS_NO_SIGN_REQUEST", "true", 1);
    ::setenv("AWS_ENDPOINT_URL_S3", server_.url().c_str(), 1);
    ::setenv("no_proxy", "127.0.0.1", 1);
    log::set_level(log::Level::error);
    start_anew();
    for (int shard = 0; shard < kShards; ++shard) {
      const std::string name = "s" + std::to_string(shard) + ".tar";
      io::TarWriter tar(path(name));
      for (int i = 0; i < kEach; ++i) {
        const std::string key = std::to_string(shard * kEach + i);
        tar.add(key + ".png", test::encode(test::noise(8, 9, static_cast<std::uint64_t>(shard * kEach + i)), ".png"));
        tar.add(key + ".txt", "caption " + key);
        tar.add(key + ".json", "{\"number\": " + key + "}");
      }
      tar.finish();
      server_.put("/b/f/" + name, io::read_file(path(name)));
    }
  }
  ~RemoteShards() override {
    remote::use_settings({.size_mb = 1});
    for (const char* name : {"AWS_NO_SIGN_REQUEST", "AWS_ENDPOINT_URL_S3", "no_proxy"}) ::unsetenv(name);
    log::set_level(log::Level::info);
  }

  /// Makes a new store, as a new process would.
  void start_anew(std::int64_t ahead = 0) {
    remote::use_settings({.size_mb = 1});
    remote::CacheSettings settings;
    settings.folder = config::OutputPath(path("cache"));
    settings.ahead = ahead;
    settings.retries = 2;
    remote::use_settings(settings);
  }

  static WebDatasetSettings settings(const std::string& where) {
    WebDatasetSettings out;
    out.path = {{where}};
    out.open_shards = 2;
    return out;
  }
  WebDatasetSettings local() const { return settings(path("s{0..5}.tar")); }

  static Loader loader(const WebDatasetSettings& of, std::int64_t threads = 2, const RankSlice& slice = {}) {
    return {make_webdataset(of),
            std::make_shared<ByteTokenizer>(),
            {.image_size = 8},
            loader_settings(concat("{batch_size: 2, threads: ", threads, "}")),
            {},
            5,
            slice};
  }
  static Texts keys_of_epoch(Loader& from) {
    Texts out;
    for (std::int64_t i = from.batches_per_epoch(); i > 0; --i) std::ranges::copy(from.next().keys, std::back_inserter(out));
    return out;
  }
  /// Returns the names of the shards that were fetched since the last call.
  std::multiset<std::string> fetched() {
    std::multiset<std::string> out;
    for (const remote::ServerRequest& request : server_.requests())
      if (request.method == "GET" && !request.path.ends_with('/') && request.header("range").empty())
        out.insert(request.path.substr(request.path.rfind('/') + 1));
    return out;
  }
  /// Deletes the local copies of shards, but not their indices.
  void forget_copies() const {
    for (const auto& entry : fs::directory_iterator(path("cache/objects"))) fs::remove(entry.path());
  }

  remote::FakeServer server_;
};

TEST_F(RemoteShards, HoldTheSamplesOfLocalShards) {
  const auto here = std::dynamic_pointer_cast<IndexedSource>(make_webdataset(local()));
  for (const std::string& where : {std::string("s3://b/f/s{0..5}.tar"), std::string("s3://b/f/"), std::string("s3://b/f/s*.tar"),
                                   server_.url() + "/b/f/s{0..5}.tar"}) {
    SCOPED_TRACE(where);
    const auto there = std::dynamic_pointer_cast<IndexedSource>(make_webdataset(settings(where)));
    ASSERT_EQ(there->size(), here->size());
    for (std::int64_t i = 0; i < here->size(); ++i) {
      const Sample a = here->get(i), b = there->get(i);
      EXPECT_EQ(a.key, b.key);
      EXPECT_EQ(a.encoded, b.encoded);
      EXPECT_EQ(a.captions, b.captions);
    }
  }
  EXPECT_EQ(make_webdataset(settings("s3://b/f/"))->describe(), "webdataset s3://b/f/s0.tar and 5 more shards, 180 samples");
}

TEST_F(RemoteShards, EveryEpochHasEachSampleOnceFromFewShardsAtATime) {
  Loader from = loader(settings("s3://b/f/"));
  Texts first;
  for (int epoch = 0; epoch < 3; ++epoch) {
    const Texts keys = keys_of_epoch(from);
    EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), 180U);
    for (std::size_t i = 0; i < keys.size(); i += 60) {  // two shards are used up before the next two begin
      std::set<int> shards;
      for (std::size_t k = i; k < i + 60; ++k) shards.insert(std::stoi(keys[k]) / kEach);
      EXPECT_EQ(shards.size(), 2U);
    }
    if (epoch == 0)
      first = keys;
    else
      EXPECT_NE(keys, first);
  }
  Loader again = loader(settings("s3://b/f/"), 1);
  EXPECT_EQ(keys_of_epoch(again), first);
}

TEST_F(RemoteShards, TwoRanksShareAnEpoch) {
  Loader a = loader(settings("s3://b/f/"), 2, {0, 2}), b = loader(settings("s3://b/f/"), 2, {1, 2});
  Texts keys = keys_of_epoch(a);
  std::ranges::copy(keys_of_epoch(b), std::back_inserter(keys));
  EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), 180U);
}

TEST_F(RemoteShards, ResumeAtTheSameSampleAnywhere) {
  start_anew(2);
  expect_resumes([&](std::int64_t threads) { return loader(settings("s3://b/f/"), threads); }, 100, 17, 10);
}

TEST_F(RemoteShards, AResumeFetchesOnlyTheShardsThatItNeeds) {
  Texts keys;
  {
    Loader whole = loader(settings("s3://b/f/"));
    EXPECT_EQ(fetched().size(), 6U);  // to index them
    keys = keys_of_epoch(whole);
    EXPECT_EQ(fetched().size(), 0U);  // all copies fit
  }
  forget_copies();
  start_anew();
  Loader resumed = loader(settings("s3://b/f/"), 1);
  EXPECT_EQ(fetched().size(), 0U) << "the indices are stored, and parts of shards are enough to check the fields";
  resumed.seek({0, 120});
  Texts rest;
  for (int i = 0; i < 4; ++i) std::ranges::copy(resumed.next().keys, std::back_inserter(rest));
  EXPECT_EQ(rest, Texts(keys.begin() + 120, keys.begin() + 128));
  std::multiset<std::string> needed;
  for (std::size_t i = 120; i < 180; ++i)
    if (const std::string name = concat("s", std::stoi(keys[i]) / kEach, ".tar"); !needed.contains(name)) needed.insert(name);
  EXPECT_EQ(needed.size(), 2U);
  EXPECT_EQ(fetched(), needed);
}

TEST_F(RemoteShards, ShardsAreFetchedBeforeTheyAreRead) {
  loader(settings("s3://b/f/"));
  forget_copies();
  start_anew(2);
  fetched();
  const auto source = make_webdataset(settings("s3://b/f/"));
  EXPECT_EQ(source->read_ahead(), 60);
  source->will_read(95);
  source->will_read(96);
  while (!remote::store()->is_idle()) std::this_thread::yield();
  EXPECT_EQ(fetched(), std::multiset<std::string>{"s3.tar"});
  const auto samples = std::dynamic_pointer_cast<IndexedSource>(source);
  EXPECT_EQ(samples->get(90).key, "90");
  EXPECT_EQ(remote::counts().misses, 0);
  EXPECT_EQ(remote::counts().hits, 1);
  EXPECT_EQ(samples->get(30).captions, Texts{"caption 30"}) << "of a shard that nobody has announced";
  EXPECT_EQ(remote::counts().hits, 1);
  EXPECT_EQ(fetched(), std::multiset<std::string>()) << "only the bytes of the sample";
}

TEST_F(RemoteShards, TheLoaderCountsWhatItFetches) {
  start_anew(2);
  Loader from = loader(settings("s3://b/f/"));
  keys_of_epoch(from);
  std::uintmax_t bytes = 0;
  for (int i = 0; i < kShards; ++i) bytes += fs::file_size(path("s" + std::to_string(i) + ".tar"));
  EXPECT_EQ(from.statistics().fetched_bytes, static_cast<std::int64_t>(bytes));
  EXPECT_GE(from.statistics().cache_hits, 180);
}

TEST_F(RemoteShards, AChangedShardIsIndexedAgain) {
  make_webdataset(settings("s3://b/f/s0.tar"));
  start_anew();
  make_webdataset(settings("s3://b/f/s0.tar"));
  fetched();
  server_.put("/b/f/s0.tar", io::read_file(path("s1.tar")));  // of the same size
  start_anew();
  const auto source = std::dynamic_pointer_cast<IndexedSource>(make_webdataset(settings("s3://b/f/s0.tar")));
  EXPECT_EQ(source->get(0).key, "30");
  EXPECT_EQ(fetched().size(), 1U);
}

TEST_F(RemoteShards, AFilterWorksOnGroups) {
  FilterSettings filter;
  filter.filter = "number >= 5 and number < 32";
  const auto source = filtered(make_webdataset(settings("s3://b/f/")), filter);
  EXPECT_EQ(source->size(), 27);
  EXPECT_EQ(source->group_starts(), (std::vector<std::int64_t>{0, 25, 27}));
  start_anew(2);
  EXPECT_EQ(filtered(make_webdataset(settings("s3://b/f/")), filter)->read_ahead(), 1 + 60 * 27 / 180)
      << "as many shards as without filter";
}

TEST_F(RemoteShards, MixWithOtherSources) {
  loader(settings("s3://b/f/"));
  forget_copies();
  start_anew(1);
  const auto far = indexed(std::shared_ptr<const Source>(make_webdataset(settings("s3://b/f/s{0..4}.tar"))));
  const auto near = indexed(std::shared_ptr<const Source>(make_webdataset(settings(path("s5.tar")))));
  const auto mixed = std::make_shared<Mixture>(MixtureMode::concat, std::vector<Mixture::Component>{{"near", near}, {"far", far}});
  EXPECT_EQ(mixed->read_ahead(), 36) << "30 samples of the remote source are 36 of both";
  fetched();
  mixed->will_read(30 + 75);
  while (!remote::store()->is_idle()) std::this_thread::yield();
  EXPECT_EQ(fetched(), std::multiset<std::string>{"s2.tar"});
  Loader from(mixed, std::make_shared<ByteTokenizer>(), {.image_size = 8}, loader_settings("{batch_size: 2, threads: 2}"), {}, 5);
  const Texts keys = keys_of_epoch(from);
  EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), 180U);
}

TEST_F(RemoteShards, AreReadAsStreamsIfTheyAreCompressed) {
  for (int shard = 0; shard < 2; ++shard) {
    const std::string file = path("z.gz");
    gzFile out = ::gzopen(file.c_str(), "wb");
    const std::string bytes = io::read_file(path("s" + std::to_string(shard) + ".tar"));
    ::gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
    ::gzclose(out);
    server_.put(concat("/b/z/", shard, ".tar.gz"), io::read_file(file));
  }
  start_anew(1);
  WebDatasetSettings streamed = settings("s3://b/z/{0,1}.tar.gz");
  Loader from = loader(streamed);
  const Texts keys = keys_of_epoch(from);
  EXPECT_EQ(std::set(keys.begin(), keys.end()).size(), 60U);
  expect_resumes([&](std::int64_t threads) { return loader(streamed, threads); }, 40, 13, 4);
  streamed.path = {{"s3://b/z/0.tar.gz", "s3://b/z/none.tar.gz"}};
  EXPECT_EQ(error_of([&] { make_webdataset(streamed); }), "s3://b/z/none.tar.gz: there is no such object");
}

TEST_F(RemoteShards, FingerprintsCoverNameSizeAndVersion) {
  const DataFingerprint first = compute_fingerprint(*make_webdataset(settings("s3://b/f/s0.tar")));
  server_.put("/b/g/s0.tar", io::read_file(path("s0.tar")));
  EXPECT_EQ(compute_fingerprint(*make_webdataset(settings("s3://b/g/s0.tar"))), first);
  server_.put("/b/h/s0.tar", io::read_file(path("s1.tar")));
  const DataFingerprint other = compute_fingerprint(*make_webdataset(settings("s3://b/h/s0.tar")));
  EXPECT_EQ(other.names, first.names);
  EXPECT_EQ(other.sizes, first.sizes);
  EXPECT_NE(other.content, first.content);
}

TEST_F(RemoteShards, ACacheThatCannotHoldTheOpenShardsIsRefused) {
  remote::CacheSettings small;
  small.folder = config::OutputPath(path("cache"));
  small.size_mb = 1;
  remote::use_settings(small);
  io::TarWriter tar(path("large.tar"));
  tar.add("0.png", test::encode(test::noise(8, 9, 1), ".png") + std::string(600'000, '\0'));
  tar.finish();
  for (int i = 0; i < 3; ++i) server_.put(concat("/b/l/", i, ".tar"), io::read_file(path("large.tar")));
  EXPECT_EQ(
      error_of([&] { make_webdataset(settings("s3://b/l/{0..2}.tar")); }),
      "s3://b/l/0.tar and 2 more shards: samples are drawn from 2 shards at a time (open_shards) of up to 588.0 KiB, which take more than "
      "data.cache.size_mb: set it to 2 or more, or open_shards to 1 or less");
}

}  // namespace
}  // namespace tessera
