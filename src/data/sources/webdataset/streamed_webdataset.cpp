#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "src/data/formats/in_threads.h"
#include "src/data/sources/webdataset/index_cache.h"
#include "src/data/sources/webdataset/shard_stream.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::size_t kCountingThreads = 4;
// These constants, in the keys of two random number generators, make the order of shards and the order in the buffer independent.
constexpr std::uint64_t kOrderOfShards = 0x5348, kOrderInBuffer = 0x4255;
constexpr std::chrono::milliseconds kLongestPause{30'000};

/// The state that all streams of one source share.
struct StreamedShards {
  StreamedShards(const WebDatasetSettings& given, std::vector<std::string> addresses)
      : settings(given), shards(std::move(addresses)), mapper(given, shards[0].starts_with("pipe:") ? "" : shards[0]), wanted{"json"} {
    for (const auto* names : {&given.image_keys, &given.caption_keys, &given.label_keys, &given.mask_keys, &given.depth_keys,
                              &given.summary_keys, &given.object_keys, &given.region_keys})
      wanted.insert(names->begin(), names->end());
  }

  StreamWaitPolicy wait_policy(const std::stop_token& stop) const {
    constexpr double kLongest = 1e9;  // seconds; the clock overflows at nine times as much
    return {std::chrono::milliseconds(static_cast<std::int64_t>(1000 * std::min(settings.stream.timeout, kLongest))), stop};
  }

  // Logs only the first shard with repeated keys, because there may be thousands of such shards, each read once per epoch.
  void tell_repeated(const std::string& shard, const StreamGrouping& grouping) const {
    if (grouping.repeated() == 0 || told_repeated.exchange(true)) return;
    log::warning(shard, ": ", grouping.repeated(),
                 " keys are repeated after other samples (first: ", grouping.repeated_example(),
                 "); a stream joins only consecutive members, so each of them is a sample of its own. Reported for one "
                 "shard; others may have the same problem");
  }

  // Used only if the samples were not counted, because counting reports all shards.
  void tell_remarks(const std::string& shard, const TarStream& tar, std::int64_t given) const {
    if (!settings.stream.samples || (given > 0 && !tar.joined() && tar.ignored() == 0) || told_remarks.exchange(true)) return;
    io::TarIndex seen;
    if (!tar.first_member().empty()) seen.members.push_back({.name = tar.first_member()});
    seen.joined = tar.joined();
    seen.ignored = tar.ignored();
    RemarkedShards remarks;
    remarks.note(shard, seen, given);
    for (const std::string& line : remarks.lines(1)) log::warning(line, "; other shards may be like it");
  }

  const WebDatasetSettings settings;
  const std::vector<std::string> shards;
  const ShardMapper mapper;
  std::set<std::string> wanted;
  mutable std::atomic<bool> told_repeated = false, told_remarks = false;
};

/// Reads one shard after the other; a shard that fails is read again from its start.
class ShardSequence {
 public:
  ShardSequence(std::shared_ptr<const StreamedShards> all, std::vector<std::string> shards, std::stop_token stop)
      : all_(std::move(all)), shards_(std::move(shards)), stop_(std::move(stop)) {}

  /// Returns a function that makes the next sample; null at the end.
  std::function<Sample()> next() {
    while (at_ < shards_.size()) {
      try {
        if (!shard_) begin_shard();
        if (std::shared_ptr<RawSample> raw = shard_->next()) {
          ++given_;
          return [all = all_, raw = std::move(raw)] { return all->mapper.load(raw->shard, raw->key, *raw); };
        }
        all_->tell_repeated(shards_[at_], shard_->grouping());
        all_->tell_remarks(shards_[at_], shard_->tar(), given_);
        end_shard();
      } catch (const StreamError& error) {
        if (auto failed = try_again(error.what())) return failed;
      }
    }
    return nullptr;
  }

 private:
  void begin_shard() {
    shard_ = std::make_unique<ShardStream>(shards_[at_], all_->wait_policy(stop_), [all = all_](const std::string& name) {
      return all->wanted.contains(name);
    });
    for (std::int64_t i = 0; i < given_; ++i)
      if (!shard_->next()) throw StreamError("has fewer samples than at the previous attempt");
  }

  void end_shard() {
    shard_.reset();
    ++at_;
    given_ = failures_ = 0;
  }

  // Handles a failure of the current shard. Returns null if the shard is to be read again, and otherwise a bad sample that stands for the
  // rest of the shard.
  std::function<Sample()> try_again(const std::string& problem) {
    const StreamSettings& settings = all_->settings.stream;
    const std::string what = concat(shards_[at_], ": ", problem, " (after ", given_, " samples)");
    shard_.reset();
    if (failures_++ < settings.retries) {
      log::warning(what, "; trying again (", failures_, " of ", settings.retries, ")");
      pause();
      return nullptr;
    }
    const std::string often = settings.retries > 0 ? concat(", ", settings.retries + 1, " times") : "";
    if (settings.on_failure == "stop")
      user_error(what, often, "; set stream.on_failure: skip to continue with the next shard");
    log::warning(what, often, "; the rest of it is skipped");
    end_shard();
    return [what]() -> Sample { throw SampleError("shard_failed", what); };
  }

  // Waits before a retry. There is no wait before the first retry; the next ones wait 1, 2, 4, ... seconds.
  void pause() const {
    if (failures_ < 2) return;
    auto left =
        std::min(kLongestPause, std::chrono::milliseconds(1000) * (1 << std::min<std::int64_t>(failures_ - 2, 5)));
    for (constexpr std::chrono::milliseconds kStep{50}; left > kStep; left -= kStep) {
      if (stop_.stop_requested()) throw Stopped();
      std::this_thread::sleep_for(kStep);
    }
  }

  const std::shared_ptr<const StreamedShards> all_;
  const std::vector<std::string> shards_;
  const std::stop_token stop_;
  std::size_t at_ = 0;
  std::unique_ptr<ShardStream> shard_;
  std::int64_t given_ = 0, failures_ = 0;  // samples returned from the current shard; failures of this shard
};

/// Reads the shards of one process again and again, in a new order in each pass. Draws the samples of a pass from a buffer.
class ShuffledStream : public SampleStream {
 public:
  ShuffledStream(std::shared_ptr<const StreamedShards> all, const StreamStart& start)
      : all_(std::move(all)),
        start_(start),
        draws_(
            start.seed, Purpose::shuffle,
            {static_cast<std::uint64_t>(start.epoch), kOrderInBuffer, static_cast<std::uint64_t>(start.slice.index)}) {
    std::vector<std::string> order = all_->shards;
    if (start.shuffle)
      Random(start.seed, Purpose::shuffle, {static_cast<std::uint64_t>(start.epoch), kOrderOfShards}).shuffle(order);
    for (auto i = static_cast<std::size_t>(start.slice.index); i < order.size();
         i += static_cast<std::size_t>(start.slice.count))
      own_.push_back(order[i]);
    sequence_.emplace(all_, own_, start_.stop);
  }

  std::function<Sample()> next() override {
    const std::size_t wanted = start_.shuffle ? static_cast<std::size_t>(all_->settings.stream.buffer) : 1;
    while (true) {
      while (sequence_ && buffer_.size() < wanted) {
        if (auto sample = sequence_->next())
          buffer_.push_back(std::move(sample));
        else
          sequence_.reset();
      }
      if (!buffer_.empty()) return draw();
      begin_pass();
    }
  }

 private:
  std::function<Sample()> draw() {
    given_ = true;
    if (start_.shuffle) std::swap(buffer_[static_cast<std::size_t>(draws_.below(std::ssize(buffer_)))], buffer_.back());
    std::function<Sample()> sample = std::move(buffer_.back());
    buffer_.pop_back();
    return sample;
  }

  void begin_pass() {
    if (!given_)
      user_error(own_[0], own_.size() > 1 ? concat(" and ", own_.size() - 1, " more streams") : "",
                 ": hold no samples (files named KEY.jpg, KEY.txt, ...)");
    given_ = false;
    if (start_.shuffle) draws_.shuffle(own_);
    sequence_.emplace(all_, own_, start_.stop);
  }

  const std::shared_ptr<const StreamedShards> all_;
  const StreamStart start_;
  Random draws_;
  std::vector<std::string> own_;
  std::optional<ShardSequence> sequence_;
  std::vector<std::function<Sample()>> buffer_;
  bool given_ = false;  // whether this pass has returned a sample
};

class StreamedWebDataset : public StreamSource {
 public:
  StreamedWebDataset(const WebDatasetSettings& settings, std::vector<std::string> shards)
      : all_(std::make_shared<StreamedShards>(settings, std::move(shards))),
        size_(settings.stream.samples ? *settings.stream.samples : counted()) {}

  std::int64_t size() const override { return size_; }
  std::int64_t files() const override { return std::ssize(all_->shards); }
  std::int64_t data_file_count() const override { return files(); }
  DataFile data_file(std::int64_t index) const override {
    return shard_file(all_->shards.at(static_cast<std::size_t>(index)));
  }
  std::vector<std::string> class_names() const override { return all_->mapper.classes(); }
  std::int64_t background_class() const override { return all_->settings.background_class; }
  double depth_units() const override { return all_->settings.depth_units; }
  std::string describe_fields(const std::vector<std::string>& needed) const override {
    const std::string keys = all_->mapper.describe(needed);
    return keys.empty() ? keys : "In their members, " + keys;
  }
  std::string describe() const override {
    return concat("webdataset ", named(), ", ", with_thousands(size_), " samples as a stream");
  }
  std::string describe_order() const override {
    return concat(files(),
                  " streams are read in a new order each epoch, each by one process, and the next sample is drawn "
                  "from a buffer of ",
                  all_->settings.stream.buffer,
                  ": the order is only approximately random, and a process that reaches the end of its streams early starts them again");
  }
  std::unique_ptr<SampleStream> open(const StreamStart& start) const override {
    return std::make_unique<ShuffledStream>(all_, start);
  }

 private:
  std::string named() const {
    return all_->shards.size() == 1 ? all_->shards[0]
                                    : concat(all_->shards[0], " and ", all_->shards.size() - 1, " more shards");
  }

  std::int64_t counted() const {
    log::info(named(), ": counting the samples, which reads everything once; set stream.samples to avoid it");
    const IndexCache cache(all_->settings.index_cache);
    const StreamWaitPolicy wait_policy = all_->wait_policy({});
    std::vector<io::TarIndex> indices(all_->shards.size());
    for_each_in_threads(indices.size(), kCountingThreads, [&](std::size_t shard) {
      indices[shard] =
          cache.index(all_->shards[shard], [&](const std::string& path) { return index_stream(path, wait_policy); });
    });
    std::int64_t count = 0;
    std::string problem;
    RemarkedShards remarks;
    for (std::size_t shard = 0; shard < indices.size(); ++shard) {
      const std::int64_t own = count_streamed(indices[shard].members);
      count += own;
      remarks.note(all_->shards[shard], indices[shard], own);
      if (indices[shard].problem.empty()) continue;
      problem = concat(all_->shards[shard], ": ", indices[shard].problem);
      log::warning(problem, "; ", own, " samples of it are counted");
    }
    for (const std::string& remark : remarks.lines(indices.size())) log::warning(remark);
    if (count == 0)
      user_error(named(), ": holds no samples (files named KEY.jpg, KEY.txt, ...)",
                 problem.empty() ? "" : concat("; ", problem));
    return count;
  }

  std::shared_ptr<const StreamedShards> all_;
  std::int64_t size_;
};

}  // namespace

std::shared_ptr<StreamSource> make_streamed_webdataset(const WebDatasetSettings& settings, std::vector<std::string> shards) {
  return std::make_shared<StreamedWebDataset>(settings, std::move(shards));
}

}  // namespace tessera
