#include "src/training/checkpoint/run_mirror.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <set>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/host.h"
#include "src/remote/cache.h"
#include "src/training/checkpoint/best_checkpoint.h"
#include "src/training/checkpoint/checkpoint.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "trainer.lock";
constexpr const char* kManifestFile = "manifest.json";
constexpr std::string_view kCheckpoints = "checkpoints/";

// Returns the names of the checkpoints in the store, oldest first: of the whole ones, or of those without a manifest.
std::vector<std::string> steps_in(const std::map<std::string, remote::ObjectState>& objects, bool whole) {
  std::set<std::pair<std::size_t, std::string>> found;  // by length, because a name may have more digits
  for (const auto& [name, state] : objects) {
    const std::size_t slash = name.find('/', kCheckpoints.size());
    if (!name.starts_with(kCheckpoints) || slash == std::string::npos) continue;
    const std::string step = name.substr(kCheckpoints.size(), slash - kCheckpoints.size());
    if (is_step_folder(step) && objects.contains(concat(kCheckpoints, step, "/", kManifestFile)) == whole)
      found.emplace(step.size(), step);
  }
  std::vector<std::string> out;
  for (const auto& [size, step] : found) out.push_back(step);
  return out;
}

std::int64_t newest_step(const std::vector<std::string>& checkpoints) {
  return checkpoints.empty() ? -1 : step_of(checkpoints.back());
}

// Returns whether a file belongs to the run, apart from its checkpoints: not locks, files that are being written, and other runs.
bool is_run_file(const std::string& name) {
  const std::string last = name.substr(name.rfind('/') + 1);
  return ("/" + name).find(concat("/", kCheckpoints)) == std::string::npos && last != kLock && !last.starts_with('.') &&
         last.find(".tmp.") == std::string::npos;
}

// Returns the step of the newest checkpoint whose files are those of its manifest; -1 if there is none.
std::int64_t newest_intact(const std::vector<std::string>& checkpoints) {
  for (auto each = checkpoints.rbegin(); each != checkpoints.rend(); ++each) {
    try {
      check_manifest(*each);
      return step_of(*each);
    } catch (const UserError& error) {
      log::warning(error.what());
    }
  }
  return -1;
}

std::string unique_name() {
  std::random_device random;
  return concat("process ", ::getpid(), " on ", host_name(), ", since ", utc_now(), " (", std::hex, random(), random(),
                ")");
}

}  // namespace

RunMirror::RunMirror(const Config& config, const std::string& folder)
    : keep_(config.checkpoint),
      folder_(fs::absolute(folder).lexically_normal()),
      address_(*config.run.mirror + "/"),
      client_(config.data.cache),
      owner_(unique_name()) {
  if (config.data.features) left_out_.emplace_back(config.data.features->folder.name);
  if (config.data.teachers) left_out_.emplace_back(config.data.teachers->folder.name);
}

RunMirror::Objects RunMirror::list() {
  Objects out;
  for (remote::ListedObject& object : client_.list(address_, /*with_subfolders=*/true))
    out.emplace(object.address.substr(address_.size()), std::move(object.state));
  return out;
}

std::string RunMirror::text_of(const std::string& name, const remote::ObjectState& state) {
  std::string out(state.size, '\0');
  client_.get(address_ + name, state, 0, 0, [&](std::uint64_t at, const char* bytes, std::size_t size) {
    std::copy_n(bytes, size, out.data() + at);
  });
  return out;
}

void RunMirror::fetch(const std::string& name, const remote::ObjectState& state, const fs::path& to) {
  const auto fail = [&] { user_error(to.string(), ": cannot be written: ", std::strerror(errno)); };
  fs::create_directories(to.parent_path());
  const std::string aside = to.string() + ".tmp.fetched";
  const remote::OpenFile file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.is_open()) fail();
  const auto write = [&](std::uint64_t at, const char* bytes, std::size_t size) {
    while (size > 0) {
      const ssize_t written = ::pwrite(file.descriptor(), bytes, size, static_cast<off_t>(at));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail();
      bytes += written;
      at += static_cast<std::uint64_t>(written);
      size -= static_cast<std::size_t>(written);
    }
  };
  client_.fetch(address_ + name, state, aside, write);
  if (::fsync(file.descriptor()) != 0) fail();
  fs::rename(aside, to);
}

// Returns whether the local folder has this checkpoint of the store, intact.
bool RunMirror::is_here(const std::string& step, const Objects& objects) {
  const std::string name = concat(kCheckpoints, step, "/", kManifestFile), file = folder_ / name;
  return fs::exists(file) && io::read_file(file) == text_of(name, objects.at(name));
}

void RunMirror::fetch_checkpoint(const std::string& step, const Objects& objects) {
  const std::string prefix = concat(kCheckpoints, step, "/");
  const fs::path all = folder_ / kCheckpoints, aside = all / (".writing_" + step), target = all / step;
  log::info("fetching ", address_, prefix);
  fs::remove_all(aside);
  for (const auto& [name, state] : objects)
    if (name.starts_with(prefix)) fetch(name, state, aside / name.substr(prefix.size()));
  check_manifest(aside.string());
  fs::remove_all(target);
  fs::rename(aside, target);
}

void RunMirror::fetch_files(const Objects& objects) {
  for (const auto& [name, state] : objects) {
    const fs::path path(name);
    const bool inside = path.is_relative() && std::ranges::find(path, "..") == path.end() && !name.ends_with('/');
    if (is_run_file(name) && inside) fetch(name, state, folder_ / path);
  }
}

void RunMirror::begin(const std::string& resume) {
  const CheckpointFolder local(folder_ / kCheckpoints, 1);
  const Objects objects = list();
  std::vector<std::string> steps = steps_in(objects, /*whole=*/true);
  try {
    if (resume != "auto") {
      if (!steps.empty() && (resume == "none" || !is_here(steps.back(), objects)))
        user_error(address_, ": already holds checkpoints up to step ", step_of(steps.back()),
                   ": continue with --resume auto, or choose another ", "run.mirror (or run.folder)");
      steps.clear();
    }
    const std::int64_t own = steps.empty() ? -1 : newest_intact(local.list());
    for (; !steps.empty() && step_of(steps.back()) >= own; steps.pop_back()) {
      if (step_of(steps.back()) == own && is_here(steps.back(), objects)) break;
      try {
        fetch_files(objects);
        const auto best = objects.find(concat(kCheckpoints, "best"));
        if (best != objects.end()) {
          const std::string text = text_of(best->first, best->second), step = text.substr(0, text.find_first_of(" \n"));
          if (step != steps.back() && std::ranges::find(steps, step) != steps.end() && !is_here(step, objects))
            fetch_checkpoint(step, objects);
          io::write_file(folder_ / best->first, text);
        }
        fetch_checkpoint(steps.back(), objects);
        io::write_file(folder_ / kCheckpoints / "latest", steps.back() + "\n");
        break;
      } catch (const UserError& error) {
        if (steps.size() == 1) throw;
        log::warning(error.what(), "; trying the previous checkpoint");
      }
    }
  } catch (const fs::filesystem_error& error) {
    user_error(folder_.string(), ": cannot fetch the run from ", address_, ": ", error.code().message());
  }
  client_.put_text(address_ + kLock, owner_ + "\n");
  try {
    client_.abort_uploads(address_);
  } catch (const UserError& error) {
    log::warning(error.what(), "; if uploads were cut, their parts may stay in the store");
  }
}

void RunMirror::store_file(const std::string& name) {
  std::error_code gone;
  const auto size = fs::file_size(folder_ / name, gone);
  const auto time = fs::last_write_time(folder_ / name, gone);
  const std::pair now(size, time);
  const auto known = stored_.find(name);
  if (gone || (known != stored_.end() && known->second == now)) return;
  client_.put(address_ + name, folder_ / name);
  stored_[name] = now;
}

void RunMirror::store_checkpoint(const fs::path& checkpoint) {
  const std::string prefix = concat(kCheckpoints, checkpoint.filename().string(), "/");
  for (const auto& entry : fs::directory_iterator(checkpoint))
    if (const std::string name = entry.path().filename(); name != kManifestFile)
      client_.put(address_ + prefix + name, entry.path());
  check_owner(list());  // a trainer that has taken over removes checkpoints without manifest
  client_.put(address_ + prefix + kManifestFile, checkpoint / kManifestFile);
}

void RunMirror::remove_checkpoint(const std::string& step, const Objects& objects) {
  const std::string prefix = concat(kCheckpoints, step, "/"), manifest = prefix + kManifestFile;
  client_.remove(address_ + manifest);
  for (const auto& [name, state] : objects)
    if (name.starts_with(prefix) && name != manifest) client_.remove(address_ + name);
}

void RunMirror::check_owner() const {
  const std::lock_guard guard(mutex_);
  if (!other_.empty())
    user_error(address_, ": another trainer, ", other_,
               ", stores this run now: this trainer ends; choose another run.folder for one of them");
}

void RunMirror::check_owner(const Objects& objects) {
  const auto lock = objects.find(kLock);
  if (lock == objects.end())
    return client_.put_text(address_ + kLock, owner_ + "\n");  // somebody has emptied the folder
  if (const std::string text(strip(text_of(kLock, lock->second))); text != owner_) {
    const std::lock_guard guard(mutex_);
    other_ = text;
  }
  check_owner();
}

void RunMirror::update() {
  check_owner();
  const Objects objects = list();
  check_owner(objects);
  for (const std::string& cut : steps_in(objects, /*whole=*/false)) remove_checkpoint(cut, objects);
  std::vector<std::string> steps = steps_in(objects, /*whole=*/true);
  const std::int64_t newest = newest_step(steps);
  try {
    const CheckpointFolder local(folder_ / kCheckpoints, 1);
    for (const std::string& checkpoint : local.list()) {
      if (step_of(checkpoint) <= newest) continue;
      store_checkpoint(checkpoint);
      steps.push_back(fs::path(checkpoint).filename());
    }
    for (const char* pointer : {"latest", "best"}) store_file(concat(kCheckpoints, pointer));
    for (auto entry = fs::recursive_directory_iterator(folder_); entry != fs::recursive_directory_iterator(); ++entry) {
      const std::string name = entry->path().lexically_relative(folder_);
      if (std::ranges::find(left_out_, entry->path().lexically_normal()) != left_out_.end())
        entry.disable_recursion_pending();
      if (entry->is_regular_file() && is_run_file(name)) store_file(name);
    }
    const std::string best = fs::path(best_checkpoint_in(folder_ / kCheckpoints)).filename();
    steps = passing_checkpoints(steps, keep_.keep_every, best, newest_step(steps));
    steps.resize(steps.size() - std::min(steps.size(), static_cast<std::size_t>(keep_.keep_last)));
    if (steps.empty()) return;
    const Objects now = list();
    for (const std::string& old : steps) remove_checkpoint(old, now);
  } catch (const fs::filesystem_error& error) {
    user_error(folder_.string(), ": cannot be stored in ", address_, ": ", error.code().message());
  }
}

void RunMirror::finish() {
  try {
    update();
  } catch (const UserError& error) {
    check_owner();
    user_error(error.what(), "; the run is complete in ", folder_.string(), ", but not in ", address_,
               ": start it again with --resume auto, which stores the rest");
  }
}

void check_mirrored_folder(const Config& config, int ranks, int ranks_here) {
  const auto& mirror = config.run.mirror;
  if (ranks == ranks_here || !mirror || config.run.path() != remote::run_folder(config.data.cache, *mirror)) return;
  user_error("run.folder: ", *mirror,
             ": the ranks are on several machines, which write parts of a checkpoint into one folder: set "
             "run.folder to a folder on a disk that all of them share, and run.mirror to ",
             *mirror);
}

}  // namespace tessera
