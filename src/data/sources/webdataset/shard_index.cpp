#include "src/data/sources/webdataset/shard_index.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "src/data/sources/webdataset/index_cache.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/io/tar.h>

namespace tessera {
namespace {

constexpr std::size_t kIndexThreads = 8;
constexpr std::chrono::seconds kTellEvery{10};

// Gathers the members of one shard into samples. A member goes to the last sample of its key, unless that has such a
// part already: then the key comes twice, and a new sample begins, so that nothing is lost.
class ShardReader {
 public:
  ShardReader(ShardIndex& index, std::uint32_t shard) : index_(index), shard_(shard), begin_(index.samples.size()) {}

  void add(const io::TarMember& member) {
    std::string key, part;
    if (!split_member_name(member.name, key, part)) return;
    const auto found = latest_.find(key);
    if (found == latest_.end()) {
      begin_sample(key);
    } else if (!is_new_part(found->second, part)) {
      ++index_.repeated;
      if (index_.repeated_example.empty()) index_.repeated_example = index_.paths[shard_] + ": " + key;
      begin_sample(key);
    } else if (found->second != current_ && scattered_.insert({found->second, true}).second) {
      ++index_.scattered;
      if (index_.scattered_example.empty()) index_.scattered_example = index_.paths[shard_] + ": " + key;
    }
    current_ = latest_.at(key);
    index_.samples[current_].parts.push_back({part, member.offset, member.size});
  }

  // A cut archive's last sample is kept only when nothing of it can be missing.
  void drop_incomplete(const std::string& cut_member) {
    const std::size_t count = index_.samples.size() - begin_;
    if (count == 0) return;
    std::string key, part;
    const bool of_last = split_member_name(cut_member, key, part) && key == index_.samples.back().key;
    const bool smaller =
        count > 1 && index_.samples.back().parts.size() < index_.samples[index_.samples.size() - 2].parts.size();
    if (of_last || smaller) index_.samples.pop_back();
  }

  std::size_t count() const { return index_.samples.size() - begin_; }

 private:
  // Files named IMG.00001.jpg all have one key: looking through its parts one by one would take quadratic time.
  bool is_new_part(std::size_t sample, const std::string& part) {
    constexpr std::size_t few = 32;
    const std::vector<ShardPart>& parts = index_.samples[sample].parts;
    if (parts.size() < few) return index_.samples[sample].find(part) == nullptr;
    std::unordered_set<std::string>& names = many_parts_[sample];
    if (names.empty())
      for (const ShardPart& each : parts) names.insert(each.name);
    return names.insert(part).second;
  }

  void begin_sample(const std::string& key) {
    latest_[key] = index_.samples.size();
    index_.samples.push_back({shard_, key, {}});
  }

  ShardIndex& index_;
  std::uint32_t shard_;
  std::size_t begin_;
  std::size_t current_ = 0;
  std::unordered_map<std::string, std::size_t> latest_;
  std::unordered_map<std::size_t, bool> scattered_;
  std::unordered_map<std::size_t, std::unordered_set<std::string>> many_parts_;  // names, of samples that have many
};

// In threads: what takes time is waiting for the disk or the network. A path that comes twice is read once.
std::map<std::string, io::TarIndex> index_tars(const std::vector<std::string>& paths, const std::string& setting) {
  const IndexCache cache(setting);
  std::map<std::string, io::TarIndex> indices;
  for (const std::string& path : paths) indices[path];
  std::mutex mutex;  // guards all that follows
  auto next = indices.begin();
  std::size_t done = 0;
  std::map<std::string, std::exception_ptr> failures;
  auto told = std::chrono::steady_clock::now();
  const auto work = [&] {
    for (std::unique_lock lock(mutex); next != indices.end() && failures.empty();) {
      auto& [path, index] = *next++;
      lock.unlock();
      std::exception_ptr failure;
      try {
        index = cache.index(path);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) failures[path] = failure;
      ++done;
      if (std::chrono::steady_clock::now() - told < kTellEvery) continue;
      told = std::chrono::steady_clock::now();
      log::info("reading the headers of the shards: ", done, " of ", indices.size());
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(kIndexThreads, indices.size()); ++i) threads.emplace_back(work);
    work();
  }
  for (const std::string& path : paths)
    if (failures.contains(path)) std::rethrow_exception(failures.at(path));
  return indices;
}

}  // namespace

const ShardPart* ShardSample::find(const std::string& name) const {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const ShardPart& part) { return part.name == name; });
  return found == parts.end() ? nullptr : &*found;
}

bool split_member_name(const std::string& name, std::string& key, std::string& part) {
  const std::size_t slash = name.rfind('/');
  const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string::npos || dot == base || dot + 1 == name.size()) return false;
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__")) return false;
  key = name.substr(0, dot);
  part = name.substr(dot + 1);
  std::transform(part.begin(), part.end(), part.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return true;
}

ShardIndex index_shards(const std::vector<std::string>& paths, const std::string& cache) {
  ShardIndex index;
  index.paths = paths;
  const std::map<std::string, io::TarIndex> indices = index_tars(paths, cache);
  for (std::size_t shard = 0; shard < paths.size(); ++shard) {
    const io::TarIndex& tar = indices.at(paths[shard]);
    ShardReader reader(index, static_cast<std::uint32_t>(shard));
    for (const io::TarMember& member : tar.members) reader.add(member);
    if (tar.problem.empty()) continue;
    reader.drop_incomplete(tar.cut_member);
    index.problems.push_back(concat(paths[shard], ": ", tar.problem, " (byte ", tar.problem_offset, "); its ",
                                    reader.count(), " complete samples are used"));
  }
  for (const ShardSample& sample : index.samples)
    for (const ShardPart& part : sample.parts) ++index.parts[part.name];
  return index;
}

}  // namespace tessera
