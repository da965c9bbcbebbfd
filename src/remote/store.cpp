#include "src/remote/store.h"

#include <algorithm>
#include <cstdlib>
#include <fnmatch.h>
#include <tuple>
#include <utility>

#include "src/base/in_threads.h"
#include "src/io/mapped_file.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera::remote {
namespace {

constexpr std::size_t kLookingThreads = 32;

/// The store of the process, and the settings with which it is made.
struct Shared {
  std::mutex mutex;
  CacheSettings settings;
  bool given = false;  // whether somebody has set the settings
  std::shared_ptr<Store> store;
};

Shared& shared() {
  static Shared made;
  return made;
}

CacheSettings usual_settings() {
  CacheSettings out;
  const char* const text = std::getenv("TESSERA_REMOTE_CACHE_MB");
  if (text == nullptr || *text == '\0') return out;
  char* end = nullptr;
  out.size_mb = std::strtoll(text, &end, 10);
  if (*end != '\0' || out.size_mb < 1) user_error("TESSERA_REMOTE_CACHE_MB is ", text, "; expected a number of MiB");
  return out;
}

}  // namespace

Store::Store(const CacheSettings& settings) : settings_(settings), client_(settings), cache_(settings, client_) {}

Store::~Store() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  client_.stop();
  wakes_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::vector<std::string> Store::expand(const std::string& name, const std::string& extension) {
  const Address address = parse_address(name);
  const std::size_t wildcard = address.key.find_first_of("*?[");
  const bool is_folder = address.key.empty() || address.key.ends_with('/');
  if (!address.is_bucket() && is_folder)
    user_error(name, ": folders of web servers cannot be listed; name the files, as in ", name, "{00000..00099}", extension);
  if (!address.is_bucket() || (wildcard == std::string::npos && !is_folder)) return {name};
  const std::string base = concat(address.scheme, "://", address.host, "/");
  if (const std::size_t slash = address.key.rfind('/'); wildcard != std::string::npos && slash != std::string::npos && wildcard < slash)
    user_error(name, ": a wildcard is possible in the name of the files only, not in a folder's");
  std::vector<std::string> out;
  for (ListedObject& object : client_.list(base + address.key.substr(0, wildcard))) {
    const bool wanted =
        is_folder ? object.address.ends_with(extension) : ::fnmatch(name.c_str(), object.address.c_str(), FNM_PATHNAME) == 0;
    if (!wanted) continue;
    out.push_back(object.address);
    const std::lock_guard lock(mutex_);
    states_.emplace(std::move(object.address), std::move(object.state));
  }
  if (out.empty()) user_error(name, is_folder ? concat(": holds no ", extension, " files") : std::string(": no object matches"));
  std::ranges::sort(out);
  return out;
}

std::vector<std::string> Store::list(const std::string& folder) {
  std::vector<std::string> out;
  for (ListedObject& object : client_.list(folder)) {
    out.push_back(object.address);
    const std::lock_guard lock(mutex_);
    states_.insert_or_assign(std::move(object.address), std::move(object.state));
  }
  std::ranges::sort(out);
  return out;
}

ObjectState Store::look_up(const std::string& address, bool again) {
  {
    const std::lock_guard lock(mutex_);
    if (again) states_.erase(address);
    if (const auto found = states_.find(address); found != states_.end()) return found->second;
  }
  ObjectState state = client_.look_up(address);
  const std::lock_guard lock(mutex_);
  return states_.emplace(address, std::move(state)).first->second;
}

void Store::look_up_all(const std::vector<std::string>& addresses) {
  for_each_in_threads(addresses.size(), kLookingThreads, [&](std::size_t i) { look_up(addresses[i]); });
}

Lease Store::open(const std::string& address) {
  Lease lease = cache_.open(address, look_up(address));
  ++(lease.waited() ? misses_ : hits_);
  return lease;
}

std::string Store::read(const std::string& address, std::uint64_t offset, std::uint64_t size) {
  ++misses_;
  std::string out(static_cast<std::size_t>(size), '\0');
  const auto take = [&](std::uint64_t at, const char* bytes, std::size_t count) { std::copy_n(bytes, count, out.data() + (at - offset)); };
  if (size == 0 || !client_.get(address, look_up(address), offset, size, take).whole) return out;
  const Lease copy = cache_.open(address, look_up(address));  // the server cannot send parts of a file
  return std::string(io::MappedFile(copy.path()).bytes().substr(offset, size));
}

bool Store::expects(const std::string& address) {
  const ObjectState state = look_up(address);
  const std::lock_guard lock(mutex_);
  return queued_.contains(address) || cache_.holds(address, state);
}

void Store::fetch_ahead(const std::string& address) {
  const std::unique_lock lock(mutex_);
  const auto state = states_.find(address);
  if (state != states_.end() && cache_.holds(address, state->second)) return;
  if (stopped_ || !queued_.insert(address).second) return;
  queue_.push_back(address);
  if (threads_.size() < static_cast<std::size_t>(std::clamp<std::int64_t>(settings_.ahead, 1, settings_.connections)) &&
      threads_.size() < queued_.size())
    threads_.emplace_back([this] { work(); });
  wakes_.notify_one();
}

bool Store::is_idle() {
  const std::lock_guard lock(mutex_);
  return queued_.empty();
}

void Store::work() {
  for (std::unique_lock lock(mutex_);;) {
    wakes_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
    if (stopped_) return;
    const std::string address = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      cache_.open(address, look_up(address));
    } catch (const std::exception&) {
      // The thread that needs the object meets the same error, and reports it.
    }
    lock.lock();
    queued_.erase(address);
  }
}

RemoteCounts Store::counts() const {
  const TransferCounts& counts = client_.counts();
  return {counts.requests, counts.bytes, counts.retries, hits_, misses_};
}

std::shared_ptr<Store> store() {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  if (!all.store) all.store = std::make_shared<Store>(all.given ? all.settings : usual_settings());
  return all.store;
}

void use_settings(const CacheSettings& settings) {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  const auto values = [](const CacheSettings& of) {
    return std::tie(of.folder.name, of.size_mb, of.ahead, of.connections, of.retries, of.timeout);
  };
  if (std::exchange(all.given, true) && values(settings) == values(all.settings)) return;
  all.settings = settings;
  all.store.reset();
}

RemoteCounts counts() {
  Shared& all = shared();
  const std::lock_guard lock(all.mutex);
  return all.store ? all.store->counts() : RemoteCounts();
}

}  // namespace tessera::remote
