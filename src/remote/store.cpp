#include "src/remote/store.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fnmatch.h>
#include <sys/resource.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "src/base/in_threads.h"
#include "src/io/mapped_file.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera::remote {
namespace {

constexpr std::size_t kLookingThreads = 32;
constexpr int kNicer = 5;  // the kernel then gives a thread a third of the time that it gives to others
constexpr std::size_t kMostSmall = 1024;  // number of small objects that wait in memory until they are read

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

/// Makes the end of the program stop the threads of its store. The store itself, a static object, is destroyed only after libcurl's TLS library
/// is cleaned up, and a thread that still fetched then would crash.
void stop_at_exit() {
  load_http();
  shared();  // exists before the function below is registered, so it is destroyed only after that function has run
  [[maybe_unused]] static const int registered = std::atexit([] {
    std::unique_lock lock(shared().mutex);
    const std::shared_ptr<Store> last = shared().store;
    lock.unlock();
    if (last) last->stop();
  });
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
  stop();
}

void Store::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  client_.stop();
  wakes_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::vector<std::string> Store::expand(const std::string& name, const std::string& extension) {
  const Address address = parse_address(name);
  const std::size_t wildcard = address.key.find_first_of("*?[");
  const bool is_folder = address.key.empty() || address.key.ends_with('/');
  if (address.is_hub() && address.key.empty()) return expand_repository(name, extension);
  if (!address.has_folders() && is_folder)
    user_error(name, ": folders of web servers cannot be listed; name the files, as in ", name, "{00000..00099}", extension);
  if (!address.has_folders() || (wildcard == std::string::npos && !is_folder)) return {name};
  return matches(name, extension);
}

std::vector<std::string> Store::matches(const std::string& name, const std::string& extension) {
  const Address address = parse_address(name);
  const std::size_t wildcard = address.key.find_first_of("*?[");
  const bool is_folder = address.key.empty() || address.key.ends_with('/');
  const std::string base = name.substr(0, name.size() - address.key.size());
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
  if (out.empty()) throw MissingObject(is_folder ? concat(name, ": holds no ", extension, " files") : name + ": no object matches");
  std::ranges::sort(out);
  return out;
}

// A repository stands for the files of its training split, as datasets names them, or for all files in data/ or at its top.
std::vector<std::string> Store::expand_repository(const std::string& name, const std::string& extension) {
  const std::string base = name + (name.ends_with('/') ? "" : "/");
  for (const char* names : {"data/train-*", "train-*", "data/"}) {
    try {
      return expand(concat(base, names, std::string_view(names).ends_with('/') ? "" : extension), extension);
    } catch (const MissingObject&) {
      // The repository has other names.
    }
  }
  return matches(base, extension);
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

Lease Store::find(const Piece& piece) {
  const ObjectState state = look_up(piece.address);
  if (piece.is_whole() || cache_.holds(piece.address, state)) return cache_.open(piece.address, state);
  try {
    return cache_.open(piece, state);
  } catch (const OnlyWholeFiles&) {
    return cache_.open(piece.address, state);
  }
}

Lease Store::open(const Piece& piece) {
  Lease lease = find(piece);
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

bool Store::expects(const Piece& piece) {
  const ObjectState state = look_up(piece.address);
  const std::lock_guard lock(mutex_);
  return queued_.contains(piece) || cache_.holds(piece, state);
}

void Store::fetch_ahead(const Piece& piece) {
  std::unique_lock lock(mutex_);
  const auto state = states_.find(piece.address);
  if (state != states_.end() && (cache_.holds(piece, state->second) || cache_.holds(piece.address, state->second))) return;
  enqueue(piece, [this, piece] { find(piece); }, lock);
}

std::string Store::read_small(const std::string& address) {
  std::shared_future<std::string> ahead;
  {
    const std::lock_guard lock(mutex_);
    if (auto found = small_.extract(address); !found.empty()) {
      ahead = std::move(found.mapped());
      std::erase(small_order_, address);
    }
  }
  const bool waits = !ahead.valid() || ahead.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  ++(waits ? misses_ : hits_);
  return ahead.valid() ? ahead.get() : client_.get_small(address);
}

void Store::read_small_ahead(const std::string& address) {
  std::unique_lock lock(mutex_);
  // An object that is being fetched for a reader is not announced again, because only one job at a time may fetch it.
  if (stopped_ || small_.contains(address) || queued_.contains(address)) return;
  const auto job = std::make_shared<std::packaged_task<std::string()>>([this, address] { return client_.get_small(address); });
  small_.emplace(address, job->get_future().share());
  small_order_.push_back(address);
  // Some objects that are announced are never read, because the run goes on elsewhere.
  if (small_order_.size() > kMostSmall) {
    small_.erase(small_order_.front());
    small_order_.pop_front();
  }
  enqueue(address, [job] { (*job)(); }, lock);
}

// Begins a job in the background, unless there is one for this piece.
void Store::enqueue(const Piece& piece, std::function<void()> job, std::unique_lock<std::mutex>& /*held*/) {
  if (stopped_ || !queued_.insert(piece).second) return;
  queue_.emplace_back(piece, std::move(job));
  if (threads_.size() < static_cast<std::size_t>(std::clamp<std::int64_t>(settings_.ahead, 1, settings_.connections)) &&
      threads_.size() < queued_.size()) {
    stop_at_exit();
    threads_.emplace_back([this] { work(); });
  }
  wakes_.notify_one();
}

bool Store::is_idle() {
  const std::lock_guard lock(mutex_);
  return queued_.empty();
}

void Store::work() {
  // Fetching ahead has time, so it should not interrupt the threads that decode or that start kernels.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), ::getpriority(PRIO_PROCESS, 0) + kNicer);
  for (std::unique_lock lock(mutex_);;) {
    wakes_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
    if (stopped_) return;
    const auto [piece, job] = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      job();
    } catch (const std::exception&) {
      // The thread that needs the object meets the same error, and reports it.
    }
    lock.lock();
    queued_.erase(piece);
  }
}

RemoteCounts Store::counts() const {
  const TransferCounts& counts = client_.counts();
  return {counts.requests, counts.bytes, counts.retries, hits_, misses_};
}

LocalFile::LocalFile(const std::string& name) : name_(name) {
  if (is_remote(name)) copy_.emplace(store()->open(name));
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
