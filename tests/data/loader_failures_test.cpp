// Tests sources that fail or hang, skipped samples, and the limits of the loader's memory.
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/data/loading/memory_budget.h"
#include "src/data/loading/ordered_workers.h"
#include "tests/data/batches.h"
#include "tests/data/fake_source.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/stream.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

/// A source that fails `failures` times in a row at one sample, or hangs at that sample until release().
class TroubledSource : public MemorySource {
 public:
  TroubledSource(std::vector<Sample> samples, std::int64_t where) : MemorySource(std::move(samples)), where_(where) {}

  Sample get(std::int64_t index) const override {
    if (index == where_) {
      if (failures-- > 0) throw UserError("the disk is gone");
      std::unique_lock lock(mutex_);
      released_.wait(lock, [this] { return !hangs; });
    }
    return MemorySource::get(index);
  }
  void release() {
    const std::lock_guard lock(mutex_);
    hangs = false;
    released_.notify_all();
  }

  mutable std::atomic<int> failures = 0;
  bool hangs = false;

 private:
  std::int64_t where_;
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
};

LoaderSettings in_order(std::int64_t batch_size, std::int64_t threads = 2) {
  return loader_settings(
      concat("{batch_size: ", batch_size, ", threads: ", threads, ", shuffle: false, retry_seconds: 0.001}"));
}

Loader over(std::shared_ptr<const Source> source, const LoaderSettings& settings, const std::string& list = "") {
  return Loader(std::move(source), std::make_shared<ByteTokenizer>(), {.image_size = 8}, settings, {}, 1, {}, {false, list});
}

TEST(LoaderFailures, ASourceThatRecoversLosesNoSamples) {
  for (std::int64_t threads : {1, 3}) {
    auto source = std::make_shared<TroubledSource>(make_samples(20), 7);
    source->failures = 3;
    Loader loader = over(source, in_order(10, threads));
    EXPECT_EQ(loader.next().keys, (std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}));
    EXPECT_EQ(loader.statistics().retries, 3);
    EXPECT_TRUE(loader.statistics().skipped.empty());
  }
}

TEST(LoaderFailures, AfterTheLastRetryTheLoaderStopsOrSkipsAsSet) {
  auto source = std::make_shared<TroubledSource>(make_samples(21), 7);
  LoaderSettings settings = in_order(10);
  settings.retries = 2;
  source->failures = 1000;
  Loader stops = over(source, settings);
  EXPECT_EQ(error_of([&] { stops.next(); }), "the disk is gone (sample number 7; tried 3 times)");
  settings.on_failure = "skip";
  Loader skips = over(source, settings);
  EXPECT_EQ(skips.next().keys, (std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "8", "9", "10"}));
  EXPECT_EQ(skips.statistics().skipped, (std::map<std::string, std::int64_t>{{"io_error", 1}}));
}

TEST(LoaderFailures, DestroyingTheLoaderEndsThePauseBetweenRetries) {
  auto source = std::make_shared<TroubledSource>(make_samples(20), 12);
  source->failures = 1000;
  LoaderSettings settings = in_order(10);
  settings.retry_seconds = 3600;
  Loader loader = over(source, settings);
  loader.next();
  while (source->failures == 1000) std::this_thread::yield();
}

TEST(LoaderFailures, AHangingReadIsReportedAndEndsTheRun) {
  auto source = std::make_shared<TroubledSource>(make_samples(40), 17);
  source->hangs = true;
  LoaderSettings settings = in_order(10, 3);
  settings.warn_after = 0.01;
  settings.timeout = 0.5;  // long enough for every sample except the hanging one, even on a busy machine
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  {
    Loader loader = over(source, settings);
    loader.next();
    const std::string error = error_of([&] { loader.next(); });
    EXPECT_TRUE(error.starts_with("data: memory, 40 samples: waited ")) << error;
    EXPECT_NE(error.find(" s for sample number 17 (thread "), std::string::npos) << error;
    EXPECT_TRUE(
        error.ends_with(" is reading it), the timeout: look at this sample, and at the disk, network or command that "
                        "it is read from"))
        << error;
    EXPECT_EQ(error_of([&] { loader.next(); }), error);
  }  // the hanging thread is left running
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("data: waited "), std::string::npos) << log;
  EXPECT_NE(log.find(" s for sample number 17 (thread "), std::string::npos) << log;
  // The message may count several threads, because other threads may also still be busy.
  EXPECT_NE(log.find(" in a sample and cannot be stopped"), std::string::npos) << log;
  source->release();
}

/// Once `armed`, the read of sample 0 fails as soon as that of sample 1 has begun, which ends only after release().
class FailsDuringARead : public MemorySource {
 public:
  using MemorySource::MemorySource;

  Sample get(std::int64_t index) const override {
    if (armed && index == 0) {
      begun_.wait(false);
      throw UserError("the disk is gone");
    }
    if (armed && index == 1) {
      begun_ = true;
      begun_.notify_all();
      released_.wait(false);
    }
    return MemorySource::get(index);
  }
  void release() {
    released_ = true;
    released_.notify_all();
  }

  bool armed = false;

 private:
  mutable std::atomic<bool> begun_ = false;
  std::atomic<bool> released_ = false;
};

TEST(LoaderFailures, ThreadsThatStillReadWhenTheSourceFailsAreNotReportedAsHanging) {
  auto source = std::make_shared<FailsDuringARead>(make_samples(20));
  LoaderSettings settings = in_order(10);
  settings.retries = 0;
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  {
    Loader loader = over(source, settings);
    source->armed = true;
    EXPECT_TRUE(error_of([&] { loader.next(); }).starts_with("the disk is gone"));
    source->release();
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("cannot be stopped"), std::string::npos) << log;
}

TEST(LoaderFailures, TheTimeoutStartsAgainWhileAStreamMovesOn) {
  std::atomic<std::int64_t> asked = 0;
  const auto after_three_questions = [&](std::int64_t, std::int64_t) {
    for (std::int64_t now = asked; now < 3; now = asked) asked.wait(now);
    return 7;
  };
  const auto move_on = [&] {
    ++asked;
    asked.notify_all();
    return asked.load();
  };
  OrderedWorkers<int> workers(1, 1, 1, after_three_questions);
  const WaitPolicy policy{.timeout = 0.01, .source = "s", .describe = [](std::int64_t) { return "x"; }, .progress = move_on};
  int result = 0;
  EXPECT_EQ(error_of([&] { result = workers.take(&policy); }), "no error");
  EXPECT_EQ(result, 7);
  asked = 3;  // lets the thread end after an error, too
  asked.notify_all();
}

TEST(LoaderFailures, AVeryLongWaitDoesNotOverflowTheClock) {
  EXPECT_EQ(check_wait({.warn_after = 1e10, .timeout = 1e300, .source = "", .describe = {}, .progress = {}}, 0, 0), 1e9);
}

TEST(LoaderFailures, ASlowReadOnlyCausesAWarning) {
  auto source = std::make_shared<TroubledSource>(make_samples(20), 3);
  source->hangs = true;
  LoaderSettings settings = in_order(10);
  settings.warn_after = 0.01;
  settings.timeout = 0;
  log::set_level(log::Level::info);
  testing::internal::CaptureStderr();
  Loader loader = over(source, settings);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    source->release();
  });
  EXPECT_EQ(loader.next().keys[3], "3");
  later.join();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("data: waited "), std::string::npos);
}

TEST(LoaderFailures, AHangDuringTheFieldProbeEndsInAnError) {
  auto source = std::make_shared<TroubledSource>(make_samples(40), 0);
  source->hangs = true;
  LoaderSettings settings = in_order(10);
  settings.timeout = 0.02;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    source->release();
  });
  const std::string error = error_of([&] { over(source, settings); });
  EXPECT_NE(error.find("s for sample number 0, the timeout"), std::string::npos) << error;
  later.join();
}

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::istringstream text(io::read_file(path));
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(text, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

class SkipListFile : public FolderTest {
 protected:
  const std::string list_ = path("skipped.jsonl");
};

std::vector<Sample> with_bad_ones(std::int64_t count, std::int64_t every) {
  std::vector<Sample> samples = make_samples(count);
  for (std::int64_t i = 0; i < count; i += every) samples[static_cast<std::size_t>(i)].encoded = "junk";
  return samples;
}

TEST_F(SkipListFile, ListsEachSampleOnceAcrossEpochsAndRestarts) {
  std::vector<Sample> samples = with_bad_ones(40, 13);
  samples[20].captions = {"caf\xE9"};
  samples[20].key = "20\xFF";
  LoaderSettings settings = in_order(7);
  settings.max_bad_share = 1;
  for (int run = 0; run < 2; ++run) {
    Loader loader = over(std::make_shared<MemorySource>(samples), settings, list_);
    for (int batch = 0; batch < 15; ++batch) loader.next();
    EXPECT_GE(loader.epoch(), 2);
  }
  const auto lines = lines_of(list_);
  ASSERT_EQ(lines.size(), 4U);  // samples 0, 13, 20 and 26; sample 39 comes after the last full batch
  EXPECT_EQ(lines[0], (nlohmann::json{{"epoch", 0},
                                      {"key", "0"},
                                      {"reason", "bad_image"},
                                      {"text",
                                       "sample 0: expected a JPEG, PNG, WebP, GIF, BMP or TIFF file, but the bytes are text "
                                       "(\"junk\")"}}));
  EXPECT_EQ(lines[2]["reason"], "not_utf8");
  EXPECT_EQ(lines[2]["key"], "20\uFFFD");
}

TEST_F(SkipListFile, IsLimitedInLengthAndSurvivesATruncatedLine) {
  LoaderSettings settings = in_order(7);
  settings.skipped_list = 3;
  settings.max_bad_share = 1;
  write("skipped.jsonl", R"({"epoch": 0, "key": "0", "reason": "bad_image", "text": ""})" "\n" R"({"epoch": 0, "ke)");
  for (int run = 0; run < 2; ++run) {
    Loader loader = over(std::make_shared<MemorySource>(with_bad_ones(60, 5)), settings, list_);
    for (int batch = 0; batch < 6; ++batch) loader.next();
  }
  std::vector<std::string> lines = split(io::read_file(list_), '\n');
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[1], R"({"epoch": 0, "ke)");
  EXPECT_NE(lines[3].find("\"10\""), std::string::npos);
  EXPECT_EQ(lines[4], R"line({"note":"further samples are only counted (data.loader.skipped_list 3)"})line");
  EXPECT_EQ(lines[5], "");
  settings.skipped_list = 0;
  std::filesystem::remove(list_);
  Loader loader = over(std::make_shared<MemorySource>(with_bad_ones(60, 5)), settings, list_);
  loader.next();
  EXPECT_FALSE(std::filesystem::exists(list_));
}

TEST_F(SkipListFile, AnUnwritableListDoesNotStopTheRun) {
  Loader loader = over(std::make_shared<MemorySource>(with_bad_ones(40, 13)), in_order(7), path("none/list"));
  EXPECT_EQ(loader.next().size(), 7);
}

// Only the first 120 samples have captions. The check before a run would pass, because it reads samples from all parts of the data and
// would find a good one. The limit max_bad_share = 1 never stops a run. So only max_bad_run can stop this run.
TEST(LoaderFailures, TooManyBadSamplesInARowStopTheRun) {
  std::vector<Sample> samples = make_samples(900);
  for (std::size_t i = 120; i < samples.size(); ++i) samples[i].captions.clear();
  LoaderSettings settings = in_order(10);
  settings.max_bad_share = 1;
  settings.max_bad_run = 50;
  Loader loader = over(std::make_shared<MemorySource>(std::move(samples)), settings);
  for (int batch = 0; batch < 12; ++batch) loader.next();
  EXPECT_EQ(error_of([&] { loader.next(); }),
            "memory, 900 samples: 50 samples in a row cannot be used (50 no_caption), as many as max_bad_run allows; "
            "found image and label; needed image and caption. Check the source's settings (names of its members or "
            "columns); the first: sample 120 has no caption");
}

TEST(MemoryBudget, TheDueSampleMayExceedTheBudgetAndOthersWait) {
  const auto budget = std::make_shared<MemoryBudget>(100);
  MemoryBudget::Claim large = budget->claim_sample(0, 250);
  std::atomic<int> passed = 0;
  std::thread second([&] {
    const MemoryBudget::Claim claim = budget->claim_sample(1, 250);
    ++passed;
  });
  std::thread third([&] {
    const MemoryBudget::Claim claim = budget->claim_sample(2, 60);
    ++passed;
  });
  EXPECT_EQ(passed, 0);
  large = {};  // now the claim of 60 bytes fits; the claim of 250 exceeds the budget
  third.join();
  EXPECT_EQ(passed, 1);
  budget->set_due(1);
  second.join();
  EXPECT_EQ(passed, 2);
  EXPECT_EQ(budget->peak(), 250);
}

TEST(MemoryBudget, BatchesWaitForEachOtherAndStopWakesAllWaiters) {
  const auto budget = std::make_shared<MemoryBudget>(100);
  budget->wait_for_batch(1000);
  MemoryBudget::Claim ready = budget->claim_batch(90);
  std::atomic<bool> begun = false;
  std::thread next([&] {
    budget->wait_for_batch(20);
    begun = true;
  });
  EXPECT_FALSE(begun);
  ready = {};
  next.join();
  EXPECT_TRUE(begun);
  ready = budget->claim_batch(90);
  std::thread stopped([&] { EXPECT_THROW(budget->wait_for_batch(20), Stopped); });
  budget->stop();
  stopped.join();
  EXPECT_THROW(budget->claim_sample(5, 20), Stopped);
}

// A batch takes 4 x 3 x 256 x 256 bytes = 0.75 MiB, so with a limit of 1 MiB only one batch can be ready, and later ones wait.
// Decoding a 600 x 600 image takes 2 MiB, so the loader decodes only one at a time.
TEST(LoaderFailures, MemoryStaysWithinItsLimitAndTheStreamIsTheSame) {
  std::vector<Sample> samples;
  for (int i = 0; i < 24; ++i) {
    Sample sample;
    sample.key = std::to_string(i);
    sample.captions = {"a"};
    sample.encoded =
        test::encode(Image{600, 600, std::vector<std::uint8_t>(1'080'000, static_cast<std::uint8_t>(i))}, ".jpg");
    samples.push_back(sample);
  }
  std::vector<at::Tensor> first;
  for (std::int64_t threads : {1, 4}) {
    for (std::int64_t mb : {1, 1000}) {
      LoaderSettings settings = in_order(4, threads);
      settings.prefetch_mb = mb;
      Loader loader(std::make_shared<MemorySource>(samples), std::make_shared<ByteTokenizer>(), {.image_size = 256}, settings, {}, 1);
      std::vector<at::Tensor> images;
      for (int i = 0; i < 6; ++i) images.push_back(loader.next().images.at("image").pixels);
      if (first.empty()) first = images;
      for (std::size_t i = 0; i < images.size(); ++i) EXPECT_TRUE(at::equal(images[i], first[i])) << i;
      // At most the batch, its samples and one image being decoded are in memory.
      if (mb == 1) {
        EXPECT_LE(loader.statistics().peak_bytes, 5 << 20) << threads;
      }
      EXPECT_GT(loader.statistics().peak_bytes, 1 << 20);
    }
  }
}

}  // namespace
}  // namespace tessera
