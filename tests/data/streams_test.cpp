// Tests shards that are read as streams: the output of commands, and compressed files.

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "src/data/formats/byte_stream.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/data/loading/sample_reader.h"
#include "src/data/sources/mixture.h"
#include "src/data/sources/webdataset/shards.h"
#include "src/data/sources/webdataset/webdataset.h"
#include "src/io/tar.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/data/temporary_folder.h"
#include <tessera/base/log.h>

namespace tessera {
namespace {

using Keys = std::vector<std::string>;

class Streams : public FolderTest {
 protected:
  static constexpr int kEach = 12;

  // Writes the shards s0.tar, s1.tar, ... and numbers the samples consecutively across them.
  void write_stream_shards(int count) const {
    const std::string image = test::encode(test::noise(8, 9, 1), ".png");
    for (int shard = 0; shard < count; ++shard) {
      io::TarWriter tar(path("s" + std::to_string(shard) + ".tar"));
      for (int i = 0; i < kEach; ++i) {
        const std::string key = std::to_string(shard * kEach + i);
        tar.add(key + ".png", image);
        tar.add(key + ".txt", "caption " + key);
        tar.add(key + ".unused", std::string(3000, 'x'));
      }
      tar.finish();
    }
  }

  // Returns settings that read all shards through cat.
  WebDatasetSettings piped(int count) const {
    WebDatasetSettings settings;
    settings.path = {{"pipe:cat " + path("s{0.." + std::to_string(count - 1) + "}.tar")}};
    settings.stream.buffer = 10;
    settings.stream.retries = 0;
    return settings;
  }

  WebDatasetSettings command(const std::string& text) const {
    WebDatasetSettings settings = piped(1);
    settings.path = {{"pipe:" + text}};
    settings.stream.samples = kEach;
    return settings;
  }

  static std::shared_ptr<const StreamSource> stream_of(const WebDatasetSettings& settings) {
    const std::shared_ptr<const Source> source = make_webdataset(settings);
    return {source, std::get<const StreamSource*>(source->kind())};
  }

  static Keys take_keys(const StreamSource& source, const StreamStart& start, int count) {
    Keys keys;
    const auto stream = source.open(start);
    for (int i = 0; i < count; ++i) keys.push_back(stream->next()().key);
    return keys;
  }

  static Keys numbers(int count) {
    Keys keys;
    for (int i = 0; i < count; ++i) keys.push_back(std::to_string(i));
    return keys;
  }

  static Keys ordered(Keys keys) {
    std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return std::stoi(a) < std::stoi(b); });
    return keys;
  }

  static Loader loader_of(const std::shared_ptr<const Source>& source, std::int64_t batch_size, std::int64_t threads,
                          const RankSlice& shard = {}, bool shuffle = true) {
    LoaderSettings settings = loader_settings(concat("{batch_size: ", batch_size, ", threads: ", threads, "}"));
    settings.shuffle = shuffle;
    return {source, std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings, {}, 5, shard};
  }

  static Keys loaded(Loader& loader, int batches) {
    Keys keys;
    for (int i = 0; i < batches; ++i) {
      const Batch batch = loader.next();
      keys.insert(keys.end(), batch.keys.begin(), batch.keys.end());
    }
    return keys;
  }
};

TEST_F(Streams, ReturnTheSamplesOfTheTars) {
  write_stream_shards(2);
  const auto source = stream_of(piped(2));
  EXPECT_EQ(source->size(), 2 * kEach) << "the samples must be counted";
  EXPECT_EQ(take_keys(*source, {.shuffle = false}, 2 * kEach), numbers(2 * kEach));
  const Sample sample = source->open({.shuffle = false})->next()();
  EXPECT_EQ(sample.captions, Keys{"caption 0"});
  EXPECT_EQ(sample.encoded, test::encode(test::noise(8, 9, 1), ".png"));
  EXPECT_TRUE(error_of([&] { indexed(*source); }).ends_with("use local, uncompressed tar files"));
}

TEST_F(Streams, ScatteredMembersOfAKeyBecomeSeparateSamplesAndAreReported) {
  for (const char* shard : {"s0.tar", "s1.tar"}) {
    io::TarWriter tar(path(shard));
    for (const char* name : {"a.txt", "b.txt", "a.cls", "b.txt", "b.json"}) tar.add(name, "7");
    tar.finish();
  }
  const auto source = stream_of(piped(2));
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  const auto stream = source->open({.shuffle = false});
  for (int i = 0; i < 9; ++i) stream->next();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(source->size(), 8) << "a, b, a, b of each shard";
  const std::string told = "s0.tar: 2 keys are repeated after other samples (first: a)";
  EXPECT_NE(log.find(told), std::string::npos) << log;
  EXPECT_EQ(log.find("keys are repeated", log.find(told) + told.size()), std::string::npos) << log;
}

TEST_F(Streams, CompressedTarsAreReadLikePlainOnes) {
  write_stream_shards(1);
  ASSERT_TRUE(shell("cd " + path("") + " && gzip -k s0.tar && cp s0.tar.gz t.tgz && bzip2 -k s0.tar"));
  for (const char* name : {"s0.tar.gz", "t.tgz", "s0.tar.bz2"}) {
    WebDatasetSettings settings;
    settings.path = {{path(name)}};
    const auto source = stream_of(settings);
    EXPECT_EQ(source->size(), kEach);
    EXPECT_EQ(take_keys(*source, {.shuffle = false}, kEach), numbers(kEach)) << name;
  }
  EXPECT_EQ(take_keys(*stream_of(command("cat " + path("s0.tar.gz"))), {.shuffle = false}, kEach), numbers(kEach))
      << "a command may write a compressed tar";
}

TEST_F(Streams, PathsMayBeCommandsWithBracesListsAndFolders) {
  EXPECT_EQ(expand_shards({{"pipe:cat a,b {0..1}.tar"}}), (Keys{"pipe:cat a,b 0.tar", "pipe:cat a,b 1.tar"}));
  EXPECT_EQ(expand_shards({{"pipe:x::pipe:y {a,b}"}}), (Keys{"pipe:x", "pipe:y a", "pipe:y b"}));
  write("f/b.tar.gz", "x");
  write("f/a.tar.gz", "x");
  write("f/a.txt", "x");
  EXPECT_EQ(expand_shards({{path("f")}}), (Keys{path("f/a.tar.gz"), path("f/b.tar.gz")}));
  write("f/c.tar", "x");
  EXPECT_EQ(expand_shards({{path("f"), "pipe:z"}}), (Keys{path("f/c.tar"), "pipe:z"}));
}

TEST_F(Streams, AnEpochHasEachSampleOnceInAnOrderThatDependsOnTheSeed) {
  write_stream_shards(4);
  const auto source = stream_of(piped(4));
  const int count = 4 * kEach;
  const Keys first = take_keys(*source, {.seed = 1, .epoch = 0}, count);
  EXPECT_NE(first, numbers(count));
  EXPECT_EQ(ordered(first), numbers(count));
  EXPECT_EQ(take_keys(*source, {.seed = 1, .epoch = 0}, count), first);
  EXPECT_NE(take_keys(*source, {.seed = 1, .epoch = 1}, count), first);
  EXPECT_NE(take_keys(*source, {.seed = 2, .epoch = 0}, count), first);
  const Keys twice = take_keys(*source, {.seed = 1, .epoch = 0}, 2 * count);
  const Keys second(twice.begin() + count, twice.end());
  EXPECT_EQ(ordered(second), numbers(count)) << "a second pass must start when the first ends";
  EXPECT_NE(second, first);
}

TEST_F(Streams, AreDividedAmongProcessesByFile) {
  write_stream_shards(5);
  const auto source = stream_of(piped(5));
  Keys all;
  for (int rank = 0; rank < 2; ++rank) {
    const int own = rank == 0 ? 3 * kEach : 2 * kEach;
    const Keys keys = take_keys(*source, {.seed = 1, .epoch = 3, .slice = {rank, 2}}, own);
    all.insert(all.end(), keys.begin(), keys.end());
  }
  EXPECT_EQ(ordered(all), numbers(5 * kEach));
  EXPECT_TRUE(
      error_of([&] {
        make_sample_reader(source, {}, 1, {0, 6}, nullptr);
      })
          .ends_with("5 streams cannot be split over 6 processes: each needs at least one; write more shards, "
                     "or use fewer processes"));
}

TEST_F(Streams, LoaderReturnsTheSameBatchesWithAnyNumberOfThreads) {
  write_stream_shards(3);
  const auto source = stream_of(piped(3));
  Loader one = loader_of(source, 4, 1), four = loader_of(source, 4, 4);
  const Keys keys = loaded(one, 20);
  EXPECT_EQ(loaded(four, 20), keys);
  EXPECT_EQ(ordered({keys.begin(), keys.begin() + 36}), numbers(36));
  EXPECT_EQ(ordered({keys.begin() + 36, keys.begin() + 72}), numbers(36));
  EXPECT_EQ(one.epoch(), 2);
}

TEST_F(Streams, LoaderResumesExactly) {
  write_stream_shards(3);
  const auto source = stream_of(piped(3));
  expect_resumes([&](std::int64_t threads) { return loader_of(source, 5, threads); }, 18, 3, 9);
}

TEST_F(Streams, AReaderCountsTheSamplesBeforeItsFirstPlace) {
  write_stream_shards(2);
  const auto source = stream_of(piped(2));
  const std::shared_ptr<SampleReader> reader = make_ordered_reader(source);
  EXPECT_EQ(reader->read(0, {0, 15}, 0, pause_and_tell).key, "15");
  EXPECT_EQ(reader->passed_over(), 15);
  EXPECT_EQ(reader->read(1, {0, 16}, 0, pause_and_tell).key, "16");
  EXPECT_EQ(reader->passed_over(), 15);
}

TEST_F(Streams, ProcessesWithFewerFilesReturnAsManyBatches) {
  write_stream_shards(3);
  const auto source = stream_of(piped(3));
  for (int rank = 0; rank < 2; ++rank) {
    Loader loader = loader_of(source, 6, 2, {rank, 2});
    EXPECT_EQ(loader.batches_per_epoch(), 3);
    loaded(loader, 3);
    EXPECT_EQ(loader.epoch(), 0);
    loader.next();
    EXPECT_EQ(loader.epoch(), 1);
  }
  EXPECT_NE(error_of([&] { loader_of(source, 40, 1); }).find("fewer samples than one batch of 40"), std::string::npos);
}

// The last sample of a stream counts as complete only if the command ends without an error. This command fails, so the last of the shard's
// 12 samples is not returned, which leaves 11.
TEST_F(Streams, AFailingCommandIsReportedAfterItsRetries) {
  write_stream_shards(1);
  WebDatasetSettings settings = command("cat " + path("s0.tar") + "; exit 3");
  const auto all = [&] { return take_keys(*stream_of(settings), {.shuffle = false}, kEach + 1); };
  const std::string what = "pipe:cat " + path("s0.tar") + "; exit 3: ended with exit code 3 (after 11 samples)";
  EXPECT_EQ(error_of(all), what + "; set stream.on_failure: skip to continue with the next shard");
  settings.stream.retries = 1;
  EXPECT_EQ(error_of(all), what + ", 2 times; set stream.on_failure: skip to continue with the next shard");
  settings = command("exit 127");
  EXPECT_EQ(
      error_of(all),
      "pipe:exit 127: ended with exit code 127 (after 0 samples); set stream.on_failure: skip to continue with the next "
      "shard");
  settings = command("kill -9 $$");
  EXPECT_NE(error_of(all).find("was ended by signal 9"), std::string::npos);
  settings = command("true");
  EXPECT_NE(error_of(all).find("has 0 bytes, which are not a tar archive"), std::string::npos);
  settings = command("echo hello");
  EXPECT_NE(error_of(all).find("is not a tar archive: it begins with the text \"hello\""), std::string::npos);
}

TEST_F(Streams, JoinedArchivesAreReadToTheirEnd) {
  write_stream_shards(2);
  WebDatasetSettings settings = command("cat " + path("s0.tar") + " " + path("s1.tar") + "; echo more");
  settings.stream.samples.reset();
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  const auto source = stream_of(settings);
  EXPECT_EQ(source->size(), 2 * kEach);
  EXPECT_EQ(take_keys(*source, {.shuffle = false}, 2 * kEach), numbers(2 * kEach));
  const std::string counted = testing::internal::GetCapturedStderr();
  EXPECT_NE(counted.find("1 of 1 shards are several archives"), std::string::npos) << counted;
  EXPECT_NE(counted.find("5 bytes)"), std::string::npos) << counted;
  settings.stream.samples = 2 * kEach;  // now only reading can tell
  testing::internal::CaptureStderr();
  take_keys(*stream_of(settings), {.shuffle = false}, 2 * kEach + 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("1 of 1 shards are several archives"), std::string::npos);
}

TEST_F(Streams, AStallingCommandIsReported) {
  write_stream_shards(1);
  WebDatasetSettings settings = command("head -c 20000 " + path("s0.tar") + "; sleep 60");
  settings.stream.timeout = 2;  // long enough for the shell to start on a busy machine
  const std::string error = error_of([&] { take_keys(*stream_of(settings), {.shuffle = false}, kEach); });
  EXPECT_NE(error.find("sleep 60: wrote no output for 2 s (after 3 samples)"), std::string::npos) << error;
}

TEST_F(Streams, ARetryResumesWhereTheFirstAttemptFailed) {
  write_stream_shards(1);
  // The first attempt writes only the first part of the shard and then exits with `code`.
  for (const char* code : {"1", "0"}) {
    WebDatasetSettings settings =
        command("if [ -e " + path("again") + code + " ]; then cat " + path("s0.tar") + "; else touch " + path("again") +
                code + "; head -c 40000 " + path("s0.tar") + "; exit " + code + "; fi");
    settings.stream.retries = 1;
    EXPECT_EQ(take_keys(*stream_of(settings), {.shuffle = false}, kEach), numbers(kEach));
  }
}

TEST_F(Streams, AFailedShardMayBeSkippedAndCounted) {
  write_stream_shards(2);
  WebDatasetSettings settings = command("");
  settings.path = {{"pipe:head -c 20000 " + path("s0.tar"), "pipe:cat " + path("s1.tar")}};
  settings.stream.on_failure = "skip";
  settings.stream.buffer = 1;
  settings.stream.samples = 16;
  Loader loader = loader_of(stream_of(settings), 5, 2, {}, false);
  const Keys keys = loaded(loader, 3);
  EXPECT_EQ(loader.statistics().skipped, (std::map<std::string, std::int64_t>{{"shard_failed", 1}}));
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), 15U);
}

TEST_F(Streams, TruncatedAndDamagedFilesAreReported) {
  write_stream_shards(1);
  ASSERT_TRUE(shell("cd " + path("") +
                    " && gzip s0.tar && head -c 400 s0.tar.gz > cut.tar.gz && "
                    "(head -c 300 s0.tar.gz; echo damage; tail -c +320 s0.tar.gz) > bad.tar.gz"));
  for (const char* name : {"cut.tar.gz", "bad.tar.gz"}) {
    WebDatasetSettings settings = command("");
    settings.path = {{path(name)}};
    const std::string error = error_of([&] { take_keys(*stream_of(settings), {.shuffle = false}, kEach); });
    EXPECT_TRUE(error.starts_with(path(name) + ": ")) << error;
  }
}

TEST_F(Streams, ChecksumsOfGzipAreVerified) {
  write_stream_shards(1);
  ASSERT_TRUE(shell("cd " + path("") + " && gzip s0.tar"));
  std::string bytes = io::read_file(path("s0.tar.gz"));
  bytes[bytes.size() - 6] ^= 1;
  write("other.tar.gz", bytes);
  WebDatasetSettings settings = command("");
  settings.path = {{path("other.tar.gz")}};
  EXPECT_NE(error_of([&] { take_keys(*stream_of(settings), {.shuffle = false}, kEach + 1); })
                .find("cannot be decompressed: gzip: incorrect data check"),
            std::string::npos);
}

TEST_F(Streams, GzipFilesOfSeveralMembersAreReadCompletely) {
  write_stream_shards(1);
  ASSERT_TRUE(shell("cd " + path("") +
                    " && (head -c 20000 s0.tar | gzip; tail -c +20001 s0.tar | gzip; head -c 700 /dev/zero) > m.tar.gz"));
  WebDatasetSettings settings = command("");
  settings.path = {{path("m.tar.gz")}};
  EXPECT_EQ(take_keys(*stream_of(settings), {.shuffle = false}, kEach), numbers(kEach));
  ASSERT_TRUE(shell("cd " + path("") + " && printf more >> m.tar.gz"));
  EXPECT_NE(error_of([&] { take_keys(*stream_of(settings), {.shuffle = false}, kEach + 1); })
                .find("gzip: more bytes follow its end"),
            std::string::npos);
}

TEST_F(Streams, ALoaderCanBeDestroyedWhileItsCommandStalls) {
  write_stream_shards(1);
  WebDatasetSettings settings = command("cat " + path("s0.tar") + "; sleep 1000");
  Loader loader = loader_of(stream_of(settings), 2, 2);
  loaded(loader, 1);
}  // the loader's destructor ends the command

TEST_F(Streams, AStopEndsTheReadsOfFilesAndCommands) {
  const std::string file = write("a.tar.gz", "x");
  std::stop_source stop;
  stop.request_stop();
  char byte = 0;
  for (const std::string& address : {file, "pipe:cat " + file})
    EXPECT_THROW(open_bytes(address, {.stop = stop.get_token()})->read(&byte, 1), Stopped) << address;
}

TEST_F(Streams, TheCheckOfFieldsReadsOnlyTheFirstSamples) {
  io::TarWriter tar(path("s0.tar"));
  for (int i = 0; i < kEach; ++i) {
    tar.add(concat(i, ".png"), test::encode(test::noise(8, 9, 1), ".png"));
    if (i > 0) tar.add(concat(i, ".txt"), "a caption");
  }
  tar.finish();
  WebDatasetSettings settings = command("echo >> " + path("opened") + "; cat " + path("s0.tar"));
  settings.stream.samples = 100 * kEach;
  loader_of(stream_of(settings), 2, 1);
  EXPECT_EQ(io::read_file(path("opened")), "\n") << "the first sample lacks a caption, the second has one";
}

TEST_F(Streams, AVeryLongTimeoutDoesNotOverflowTheClock) {
  write_stream_shards(1);
  WebDatasetSettings settings = command("sleep 0.2; cat " + path("s0.tar"));
  settings.stream.timeout = 1e16;
  EXPECT_EQ(take_keys(*stream_of(settings), {.shuffle = false}, kEach), numbers(kEach));
}

TEST_F(Streams, EvaluationReadsAStreamOnceInOrder) {
  write_stream_shards(2);
  EvaluationReader reader(stream_of(piped(2)), {.image_size = 8}, 7, 3);
  Keys keys;
  for (auto samples = reader.next(); !samples.empty(); samples = reader.next())
    for (const EvaluationSample& sample : samples) keys.push_back(sample.sample.key);
  EXPECT_EQ(keys, numbers(2 * kEach));
}

TEST_F(Streams, CannotBeMixed) {
  write_stream_shards(1);
  MixtureComponentSettings component;
  component.source.name = "webdataset";
  component.source.settings = config::parse_yaml("{path: 'pipe:cat " + path("s0.tar") + "'}", "c.yaml");
  const std::string error = error_of([&] { make_mixture({"concat", {component}}); });
  EXPECT_TRUE(error.starts_with("mixture: source webdataset (webdataset pipe:cat ")) << error;
  EXPECT_TRUE(error.ends_with("streams cannot be mixed: use local, uncompressed tar files")) << error;
}

TEST_F(Streams, TheSampleCountOfACompressedTarIsCached) {
  write_stream_shards(1);
  ASSERT_TRUE(shell("gzip " + path("s0.tar")));
  std::filesystem::last_write_time(path("s0.tar.gz"),
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  WebDatasetSettings settings;
  settings.path = {{path("s0.tar.gz")}};
  stream_of(settings);
  EXPECT_TRUE(std::filesystem::exists(path("s0.tar.gz.index")));
  EXPECT_EQ(stream_of(settings)->size(), kEach);
}

}  // namespace
}  // namespace tessera
