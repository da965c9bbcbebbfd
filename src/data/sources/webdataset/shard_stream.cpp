#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <unordered_set>

#include "src/base/printable.h"
#include "src/data/formats/data_files.h"
#include "src/base/in_threads.h"
#include "src/data/sources/webdataset/shards.h"
#include "src/io/tar.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/random.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::string_view kCommand = "pipe:";
constexpr std::uint64_t kLargestMember = std::uint64_t{1} << 60;
constexpr std::uint64_t kLargestStep = 1 << 20;  // memory grows by at most this many bytes at a time, because headers may give false sizes
constexpr std::uint64_t kLargestFile = 1 << 30;  // maximum bytes of a file; without a limit, compressed zeros could fill the memory

bool has_files(const std::string& folder, const std::string& extension) {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
    if (entry.path().filename().string().ends_with(extension)) return true;
  return false;
}

bool is_local(const std::string& address) {
  return !address.starts_with(kCommand) && !remote::is_remote(address);
}

constexpr std::size_t kCountingThreads = 4;
// These constants, in the keys of two random number generators, make the order of shards and the order in the buffer independent.
constexpr std::uint64_t kOrderOfShards = 0x5348, kOrderInBuffer = 0x4255;
constexpr std::chrono::milliseconds kLongestPause{30'000};

/// A sample as stored in a shard: the bytes of its members.
struct RawSample : ShardRow {
  using ShardRow::ShardRow;
  bool has(const std::string& name) const override { return members.contains(name); }
  std::string read(const std::string& name) const override { return members.at(name); }

  std::map<std::string, std::string> members;  // the bytes, by name
};

/// Detects where a new sample starts: at a new key, or at a member name that the current sample already has.
class StreamGrouping {
 public:
  bool begins(const std::string& key, const std::string& name) {
    const bool is_new = names_.empty() || key != key_ || names_.contains(name);
    if (is_new) {
      names_.clear();
      key_ = key;
      if (!keys_.insert(std::hash<std::string>()(key)).second && repeated_++ == 0) repeated_example_ = key;
    }
    names_.insert(name);
    return is_new;
  }

  /// The number of samples with a key that occurred before in this shard.
  std::int64_t repeated() const { return repeated_; }
  const std::string& repeated_example() const { return repeated_example_; }

 private:
  std::string key_;
  std::unordered_set<std::string> names_;  // names of the current sample's members
  // hashes of all keys so far; they take less memory than the keys, of which a shard may hold millions
  std::unordered_set<std::size_t> keys_;
  std::int64_t repeated_ = 0;
  std::string repeated_example_;
};

/// Reads the samples of a shard that is a stream: consecutive members with the same key form a sample.
class ShardStream {
 public:
  /// `wanted` has the names of the members to keep; it must outlive the stream. The constructor and next() throw StreamError.
  ShardStream(const std::string& address, const StreamWaitPolicy& wait_policy, const std::set<std::string>& wanted)
      : address_(address), wanted_(wanted), tar_(decompress(open_bytes(address, wait_policy))) {}

  /// Returns the next sample; null at the end.
  std::shared_ptr<RawSample> next() {
    io::TarMember member;
    for (std::string key, name; tar_.next(member);) {
      if (!split_member_path(member.name, key, name)) continue;
      std::shared_ptr<RawSample> complete;
      if (grouping_.begins(key, name)) complete = std::exchange(open_, std::make_shared<RawSample>(address_, key));
      if (wanted_.contains(name)) open_->members.emplace(name, tar_.content());
      if (complete) return complete;
    }
    return std::exchange(open_, nullptr);
  }

  const StreamGrouping& grouping() const { return grouping_; }
  const TarStream& tar() const { return tar_; }

 private:
  const std::string address_;
  const std::set<std::string>& wanted_;
  TarStream tar_;
  StreamGrouping grouping_;
  std::shared_ptr<RawSample> open_;  // the current sample; more members may follow
};

// Returns how many samples ShardStream would make from these members.
std::int64_t count_streamed(const std::vector<io::TarMember>& members) {
  StreamGrouping grouping;
  std::int64_t count = 0;
  std::string key, name;
  for (const io::TarMember& member : members)
    if (split_member_path(member.name, key, name) && grouping.begins(key, name)) ++count;
  return count;
}

// Indexes a tar that is a stream, as index_tar does for other tars. Offsets count uncompressed bytes.
io::TarIndex index_stream(const std::string& address, const StreamWaitPolicy& wait_policy) {
  io::TarIndex index;
  try {
    TarStream tar(decompress(open_bytes(address, wait_policy)));
    for (io::TarMember member; tar.next(member);) index.members.push_back(member);
    index.joined = tar.joined();
    index.ignored = tar.ignored();
  } catch (const StreamError& error) {
    index.problem = error.what();
  }
  return index;
}

/// The state that all streams of one source share.
struct StreamedShards {
  StreamedShards(const WebDatasetSettings& given, std::vector<std::string> addresses)
      : settings(given), shards(std::move(addresses)), mapper(given, is_local(shards[0]) ? shards[0] : ""), wanted{"json"} {
    for (const auto* names : {&given.image_keys, &given.caption_keys, &given.label_keys, &given.mask_keys, &given.depth_keys,
                              &given.summary_keys, &given.object_keys, &given.region_keys})
      wanted.insert(names->begin(), names->end());
  }

  StreamWaitPolicy wait_policy(const std::stop_token& stop) const {
    constexpr double longest = 1e9;  // seconds; the clock overflows at nine times as much
    return {std::chrono::milliseconds(static_cast<std::int64_t>(1000 * std::min(settings.stream.timeout, longest))), stop};
  }

  // Warns of what is unusual about a shard with `given` samples. Only the first shard with repeated keys is reported, because there may be
  // thousands, each read once per epoch. The rest is reported only if the samples were not counted, because counting reports all shards.
  void tell_remarks(const std::string& shard, const StreamGrouping& grouping, const TarStream& tar, std::int64_t given) const {
    if (grouping.repeated() > 0 && !reported_repeated.exchange(true))
      log::warning(shard, ": ", grouping.repeated(), " keys are repeated after other samples (first: ", grouping.repeated_example(),
                   "); a stream joins only consecutive members, so each of them is a sample of its own. Reported for one shard; others may "
                   "have the same problem");
    if (!settings.stream.samples || (given > 0 && !tar.joined() && tar.ignored() == 0) || reported_remarks.exchange(true)) return;
    io::TarIndex seen;
    if (!tar.first_member().empty()) seen.members.push_back({.name = tar.first_member()});
    seen.joined = tar.joined();
    seen.ignored = tar.ignored();
    ShardRemarks remarks;
    remarks.note(shard, seen, given);
    for (const std::string& line : remarks.lines(1)) log::warning(line, "; other shards may be like it");
  }

  const WebDatasetSettings settings;
  const std::vector<std::string> shards;
  const ShardMapper mapper;
  std::set<std::string> wanted;  // names of the members to keep
  mutable std::atomic<bool> reported_repeated = false, reported_remarks = false;
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
          return [all = all_, raw = std::move(raw)] { return all->mapper.load(std::move(*raw)); };
        }
        all_->tell_remarks(shards_[at_], shard_->grouping(), shard_->tar(), given_);
        end_shard();
      } catch (const StreamError& error) {
        if (auto failed = try_again(error.what())) return failed;
      }
    }
    return nullptr;
  }

 private:
  void begin_shard() {
    if (std::ranges::any_of(shards_, remote::is_remote)) {
      const std::size_t end = std::min(shards_.size(), at_ + 1 + static_cast<std::size_t>(remote::store()->ahead()));
      for (std::size_t next = at_ + 1; next < end; ++next)
        if (remote::is_remote(shards_[next])) remote::store()->fetch_ahead(shards_[next]);
    }
    shard_ = std::make_unique<ShardStream>(shards_[at_], all_->wait_policy(stop_), all_->wanted);
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
    if (settings.on_failure == "stop") user_error(what, often, "; set stream.on_failure: skip to continue with the next shard");
    log::warning(what, often, "; the rest of it is skipped");
    end_shard();
    return [what]() -> Sample { throw SampleError("shard_failed", what); };
  }

  // Waits before a retry. There is no wait before the first retry; the next ones wait 1, 2, 4, ... seconds.
  void pause() const {
    if (failures_ < 2) return;
    auto left = std::min(kLongestPause, std::chrono::milliseconds(1000) * (1 << std::min<std::int64_t>(failures_ - 2, 5)));
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
        draws_(start.seed, Purpose::shuffle,
               {static_cast<std::uint64_t>(start.epoch), kOrderInBuffer, static_cast<std::uint64_t>(start.slice.index)}) {
    std::vector<std::string> order = all_->shards;
    if (start.shuffle) Random(start.seed, Purpose::shuffle, {static_cast<std::uint64_t>(start.epoch), kOrderOfShards}).shuffle(order);
    for (auto i = static_cast<std::size_t>(start.slice.index); i < order.size(); i += static_cast<std::size_t>(start.slice.count))
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
    if (!given_) user_error(first_and_more(own_, "streams"), ": hold no samples (files named KEY.jpg, KEY.txt, ...)");
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
  DataFile data_file(std::int64_t index) const override { return shard_file(all_->shards.at(static_cast<std::size_t>(index))); }
  std::vector<std::string> class_names() const override { return all_->mapper.classes(); }
  std::int64_t background_class() const override { return all_->settings.background_class; }
  double depth_units() const override { return all_->settings.depth_units; }
  std::string describe_fields(const std::vector<std::string>& needed) const override {
    const std::string where = all_->mapper.describe(needed);
    return where.empty() ? where : "In their members, " + where;
  }
  std::string describe() const override { return concat("webdataset ", named(), ", ", with_thousands(size_), " samples as a stream"); }
  std::string describe_order() const override {
    return concat(files(),
                  " streams are read in a new order each epoch, each by one process, and the next sample is drawn from a buffer of ",
                  all_->settings.stream.buffer,
                  ": the order is only approximately random, and a process that reaches the end of its streams early starts them again");
  }
  std::unique_ptr<SampleStream> open(const StreamStart& start) const override { return std::make_unique<ShuffledStream>(all_, start); }

 private:
  std::string named() const { return first_and_more(all_->shards, "shards"); }

  std::int64_t counted() const {
    log::info(named(), ": counting the samples, which reads everything once; set stream.samples to avoid it");
    const IndexCache cache(all_->settings.index_cache);
    const StreamWaitPolicy wait_policy = all_->wait_policy({});
    std::vector<io::TarIndex> indices(all_->shards.size());
    for_each_in_threads(indices.size(), kCountingThreads, [&](std::size_t shard) {
      indices[shard] = cache.index(all_->shards[shard], [&](const std::string& path) { return index_stream(path, wait_policy); });
    });
    std::int64_t count = 0;
    std::string problem;
    ShardRemarks remarks;
    for (std::size_t shard = 0; shard < indices.size(); ++shard) {
      const std::int64_t own = count_streamed(indices[shard].members);
      count += own;
      remarks.note(all_->shards[shard], indices[shard], own);
      if (indices[shard].problem.empty()) continue;
      problem = concat(all_->shards[shard], ": ", indices[shard].problem);
      log::warning(problem, "; ", own, " samples of it are counted");
    }
    for (const std::string& remark : remarks.lines(indices.size())) log::warning(remark);
    if (count == 0) user_error(named(), ": holds no samples (files named KEY.jpg, KEY.txt, ...)", problem.empty() ? "" : "; " + problem);
    return count;
  }

  std::shared_ptr<const StreamedShards> all_;
  std::int64_t size_;
};

}  // namespace

std::string TarStream::take(std::uint64_t size) {
  std::string out;
  while (out.size() < size) {
    const std::size_t begin = out.size();
    out.resize(begin + static_cast<std::size_t>(std::min<std::uint64_t>(size - begin, kLargestStep)));
    const std::size_t count = bytes_->read(out.data() + begin, out.size() - begin);
    out.resize(begin + count);
    at_ += count;
    if (count == 0) break;
  }
  return out;
}

// Reads up to `most` bytes, and returns their number, which is smaller only at the end of the stream.
std::uint64_t TarStream::skip(std::uint64_t most) {
  std::array<char, 1 << 14> buffer{};
  std::uint64_t total = 0;
  for (std::size_t count = 1; total < most && count > 0; total += count)
    count = bytes_->read(buffer.data(), static_cast<std::size_t>(std::min<std::uint64_t>(most - total, buffer.size())));
  at_ += total;
  return total;
}

void TarStream::pass_over_content() {
  const std::uint64_t size = std::exchange(content_, 0) + std::exchange(filling_, 0);
  if (skip(size) < size) throw StreamError("the archive ends in the middle of " + name_);
}

bool TarStream::next(io::TarMember& member) {
  pass_over_content();
  io::TarHeaderReader reader;
  while (true) {
    const std::uint64_t begin = at_;
    const std::string block = take(io::kBlock);
    if (block.empty() && begin > 0) return false;
    if (!block.empty() && io::is_zero_block(block)) {
      ended_ = true;
      continue;
    }
    io::TarHeader header;
    const std::string problem = block.size() < io::kBlock ? "the archive ends in the middle of a header" : reader.read(block, header);
    if (!problem.empty() && ended_) {
      ignored_ = block.size() + skip(UINT64_MAX);  // to the end, because a command's exit code is checked only there
      return false;
    }
    if (!problem.empty() && begin == 0) {
      const std::string other = io::not_a_tar(block);
      throw StreamError(other.empty() ? concat("has ", block.size(), " bytes, which are not a tar archive") : other);
    }
    if (!problem.empty()) throw StreamError(block.size() < io::kBlock ? problem : concat(problem, " (byte ", begin, ")"));
    joined_ = joined_ || ended_;
    ended_ = false;
    name_ = header.extended ? "a header" : printable(header.name);
    for (bool more = header.continued; more;) {
      const std::string follows = take(io::kBlock);
      if (follows.size() < io::kBlock) throw StreamError("the archive ends in the middle of a header");
      more = io::TarHeaderReader::continues(follows);
    }
    if (header.size > kLargestMember) throw StreamError("a member's size is not a number");
    content_ = header.size;
    filling_ = (io::kBlock - header.size % io::kBlock) % io::kBlock;
    if (header.extended) {
      if (header.size > io::kLongestExtension) throw StreamError("an extended header is too long");
      if (const std::string damage = reader.extend(content()); !damage.empty()) throw StreamError(damage);
    } else if (header.regular) {
      member = {header.name, at_, header.size};
      if (first_.empty()) first_ = header.name;
      return true;
    }
    pass_over_content();
  }
}

std::string TarStream::content() {
  if (content_ > kLargestFile) throw StreamError(concat(name_, " has ", content_, " bytes: too many for a sample"));
  std::string out = take(content_);
  if (out.size() < content_) throw StreamError("the archive ends in the middle of " + name_);
  content_ = 0;
  return out;
}

bool is_stream(const std::string& address) {
  const std::string name = remote::is_remote(address) ? remote::file_name(address) : address;
  return address.starts_with(kCommand) || std::ranges::any_of(std::array{".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz"},
                                                              [&](const char* ending) { return name.ends_with(ending); });
}

DataFile shard_file(const std::string& address) {
  return address.starts_with(kCommand) ? DataFile{address, ""} : data_file_at(address);
}

std::vector<std::string> expand_shards(const PathList& paths) {
  std::vector<std::string> out;
  const auto append = [&](const std::vector<std::string>& more) { out.insert(out.end(), more.begin(), more.end()); };
  PathList files;
  for (const std::string& item : paths.items) {
    if (item.starts_with(kCommand)) {
      // Commands may contain commas, so "::" separates the commands of an item.
      std::string rest = item;
      for (std::size_t end = 0; end != std::string::npos; rest = end == std::string::npos ? "" : rest.substr(end + 2)) {
        end = rest.find("::" + std::string(kCommand));
        append(expand_braces(rest.substr(0, end)));
      }
      continue;
    }
    std::string extension = ".tar";
    std::error_code ignored;
    const std::string folder = local_path(item);
    if (std::filesystem::is_directory(folder, ignored) && !has_files(folder, extension))
      extension = has_files(folder, ".tar.gz") ? ".tar.gz" : has_files(folder, ".tgz") ? ".tgz" : extension;
    append(expand_paths({{item}, paths.origin, paths.searched}, extension, FilePlaces::commands));
  }
  if (out.empty()) append(expand_paths(paths, ".tar", FilePlaces::commands));  // throws, because `paths` names nothing; the error says what is missing
  return out;
}

std::shared_ptr<StreamSource> make_streamed_webdataset(const WebDatasetSettings& settings, std::vector<std::string> shards) {
  return std::make_shared<StreamedWebDataset>(settings, std::move(shards));
}

}  // namespace tessera
