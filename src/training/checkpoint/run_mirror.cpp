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
constexpr std::string_view kCheckpoints = "checkpoints/";

/// Thrown if the files of a stored checkpoint are not those of its manifest.
class DamagedCheckpoint : public UserError {
 public:
  using UserError::UserError;
};

// Sorts the names of checkpoints, oldest first, and removes duplicates.
std::vector<std::string> in_order(const std::vector<std::string>& steps) {
  std::set<std::pair<std::size_t, std::string>> sorted;  // by length, because a name may have more digits
  for (const std::string& step : steps) sorted.emplace(step.size(), step);
  std::vector<std::string> out;
  for (const auto& [size, step] : sorted) out.push_back(step);
  return out;
}

// Returns the names of the checkpoints in the store, oldest first: of the whole ones, or of those without a manifest.
std::vector<std::string> steps_in(const std::map<std::string, remote::ObjectState>& objects, bool whole) {
  std::vector<std::string> found;
  for (const auto& [name, state] : objects) {
    const std::size_t slash = name.find('/', kCheckpoints.size());
    if (!name.starts_with(kCheckpoints) || slash == std::string::npos) continue;
    const std::string step = name.substr(kCheckpoints.size(), slash - kCheckpoints.size());
    if (is_step_folder(step) && objects.contains(concat(kCheckpoints, step, "/", kManifest)) == whole)
      found.push_back(step);
  }
  return in_order(found);
}

// Returns the content of `latest` or `best` in a folder of checkpoints; empty if there is no such file.
std::string pointer_in(const fs::path& folder, const char* pointer) {
  return fs::exists(folder / pointer) ? io::read_file(folder / pointer) : "";
}

// Returns the name of the checkpoint that the content of `latest` or `best` begins with.
std::string named_in(const std::string& pointer) {
  return pointer.substr(0, pointer.find_first_of(" \n"));
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

}  // namespace

std::string RunMirror::new_trainer_name() {
  std::random_device random;
  return concat("process ", ::getpid(), " on ", host_name(), ", since ", utc_now(), " (", std::hex, random(), random(), ")");
}

RunMirror::RunMirror(const Config& config, const std::string& folder, std::string trainer)
    : keep_(config.checkpoint),
      folder_(fs::absolute(folder).lexically_normal()),
      address_(*config.run.mirror + "/"),
      client_(config.data.cache),
      owner_(std::move(trainer)) {
  const auto leave_out = [&](const std::string& name) { left_out_.push_back((fs::absolute(name) / "").lexically_normal().parent_path()); };
  if (config.data.features) leave_out(config.data.features->folder.name);
  if (config.data.teachers) leave_out(config.data.teachers->folder.name);
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
  client_.fetch(address_ + name, state, aside, [&](std::uint64_t at, const char* bytes, std::size_t size) {
    if (!file.write(at, bytes, size)) fail();
  });
  if (::fsync(file.descriptor()) != 0) fail();
  fs::rename(aside, to);
}

// Returns whether the local folder has this checkpoint of the store, intact.
bool RunMirror::is_here(const std::string& step, const Objects& objects) {
  const std::string name = concat(kCheckpoints, step, "/", kManifest), file = folder_ / name;
  return fs::exists(file) && io::read_file(file) == text_of(name, objects.at(name));
}

void RunMirror::fetch_checkpoint(const std::string& step, const Objects& objects) {
  const std::string prefix = concat(kCheckpoints, step, "/");
  const fs::path all = folder_ / kCheckpoints, aside = all / (".writing_" + step), target = all / step;
  log::info("fetching ", address_, prefix);
  fs::remove_all(aside);
  for (const auto& [name, state] : objects) {
    if (!name.starts_with(prefix)) continue;
    const std::string file = name.substr(prefix.size());
    // A checkpoint has no subfolders; a name such as ../x leads out of its folder.
    if (!file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos) fetch(name, state, aside / file);
  }
  try {
    check_manifest(aside.string());
  } catch (const UserError& error) {
    std::string text = error.what();
    if (const std::string local = aside.string() + "/"; text.starts_with(local)) text.replace(0, local.size(), address_ + prefix);
    fs::remove_all(aside);
    throw DamagedCheckpoint(text);
  }
  fs::remove_all(target);
  fs::rename(aside, target);
}

void RunMirror::fetch_files(const Objects& objects) {
  for (const auto& [name, state] : objects) {
    const fs::path path(name);
    const bool inside = path.is_relative() && !contains(path, "..") && !name.ends_with('/');
    if (is_run_file(name) && inside) fetch(name, state, folder_ / path);
  }
}

void RunMirror::begin(const std::string& resume) {
  try {
    if (resume != "auto") {
      const Objects objects = list();
      const std::vector<std::string> steps = steps_in(objects, /*whole=*/true);
      if (!steps.empty() && (resume == "none" || !is_here(steps.back(), objects)))
        user_error(address_, ": already holds checkpoints up to step ", step_of(steps.back()),
                   ": continue with --resume auto, or choose another ", "run.mirror (or run.folder)");
    }
    // From now on, an earlier trainer that still runs stores and deletes nothing, so the checkpoints that are listed next stay.
    client_.put_text(address_ + kLock, owner_ + "\n");
    try {
      client_.abort_uploads(address_);
    } catch (const UserError& error) {
      log::warning(error.what(), "; if uploads were cut, their parts may stay in the store");
    }
    if (resume == "auto") fetch_newest();
  } catch (const fs::filesystem_error& error) {
    user_error(folder_.string(), ": cannot fetch the run from ", address_, ": ", error.code().message());
  }
}

// Fetches the newest checkpoint of the store that is intact, unless the local folder has it or a newer one, and the run's other files.
void RunMirror::fetch_newest() {
  const Objects objects = list();
  std::vector<std::string> steps = steps_in(objects, /*whole=*/true);
  const std::int64_t own = newest_intact(CheckpointFolder(folder_ / kCheckpoints, 1).list());
  for (bool begun = false; !steps.empty() && step_of(steps.back()) >= own; steps.pop_back()) {
    if (step_of(steps.back()) == own && is_here(steps.back(), objects)) break;
    try {
      if (!std::exchange(begun, true)) {
        fetch_files(objects);
        fetch_best(steps, objects);
      }
      fetch_checkpoint(steps.back(), objects);
      io::write_file(folder_ / kCheckpoints / "latest", steps.back() + "\n");
      return;
    } catch (const DamagedCheckpoint& error) {
      if (steps.size() == 1 && own < 0) throw;
      stored_[concat(kCheckpoints, steps.back(), "/", kManifest)] = {};  // update() stores a checkpoint of this step again
      log::warning(error.what(), "; trying the previous checkpoint");
    }
  }
  if (own >= 0) name_latest(own);
}

// A process that was killed may have written this checkpoint, but not its name, by which update() knows where the run is.
void RunMirror::name_latest(std::int64_t step) const {
  const std::string name = step_folder_name(step);
  if (named_in(pointer_in(folder_ / kCheckpoints, "latest")) != name) io::write_file(folder_ / kCheckpoints / "latest", name + "\n");
}

std::int64_t RunMirror::newest_here() const {
  const std::int64_t step = newest_intact(CheckpointFolder(folder_ / kCheckpoints, 1).list());
  if (step >= 0) name_latest(step);
  return step;
}

void RunMirror::fetch(const std::string& step) {
  try {
    const Objects objects = list();
    const bool stored = objects.contains(concat(kCheckpoints, step, "/", kManifest));
    if (!stored || !is_here(step, objects) || newest_intact({folder_ / kCheckpoints / step}) < 0) fetch_checkpoint(step, objects);
  } catch (const fs::filesystem_error& error) {
    user_error(folder_.string(), ": cannot fetch the run from ", address_, ": ", error.code().message());
  }
}

void RunMirror::forget_checkpoints() {
  std::error_code error;
  fs::remove_all(folder_ / kCheckpoints, error);
  if (!error) fs::create_directories(folder_ / kCheckpoints, error);
  if (error) user_error((folder_ / kCheckpoints).string(), ": cannot delete the checkpoints: ", error.message());
}

// Fetches the best of the checkpoints `steps`, unless it is the newest one, and the file that names it.
void RunMirror::fetch_best(const std::vector<std::string>& steps, const Objects& objects) {
  const auto best = objects.find(concat(kCheckpoints, "best"));
  if (best == objects.end()) return;
  const std::string text = text_of(best->first, best->second), step = named_in(text);
  if (!contains(steps, step)) return;
  try {
    if (step != steps.back() && !is_here(step, objects)) fetch_checkpoint(step, objects);
    io::write_file(folder_ / best->first, text);
  } catch (const DamagedCheckpoint& error) {
    log::warning(error.what(), "; the run continues without its best checkpoint");
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
    if (const std::string name = entry.path().filename(); name != kManifest)
      client_.put(address_ + prefix + name, entry.path());
  check_owner(list());  // a trainer that has taken over removes checkpoints without manifest
  const auto now = facts_of(prefix + kManifest);
  client_.put(address_ + prefix + kManifest, checkpoint / kManifest);
  stored_[prefix + kManifest] = now;
}

RunMirror::Facts RunMirror::facts_of(const std::string& name) const {
  return {fs::file_size(folder_ / name), fs::last_write_time(folder_ / name)};
}

// Returns whether the store has this checkpoint as it is in the local folder. The manifests are compared once.
bool RunMirror::is_stored(const std::string& step, const Objects& objects) {
  const std::string name = concat(kCheckpoints, step, "/", kManifest);
  if (!objects.contains(name)) return false;
  const Facts now = facts_of(name);
  if (!stored_.contains(name) && is_here(step, objects)) stored_[name] = now;
  const auto known = stored_.find(name);
  return known != stored_.end() && known->second == now;
}

void RunMirror::remove_checkpoint(const std::string& step, const Objects& objects) {
  const std::string prefix = concat(kCheckpoints, step, "/"), manifest = prefix + kManifest;
  client_.remove(address_ + manifest);
  for (const auto& [name, state] : objects)
    if (name.starts_with(prefix) && name != manifest) client_.remove(address_ + name);
}

// Removes a checkpoint that is stored again under the same name, and before that the files that name it.
void RunMirror::clear_checkpoint(const std::string& step, const Objects& objects) {
  for (const char* pointer : {"latest", "best"}) {
    const auto found = objects.find(concat(kCheckpoints, pointer));
    if (found != objects.end() && named_in(text_of(found->first, found->second)) == step) client_.remove(address_ + found->first);
  }
  remove_checkpoint(step, objects);
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

// Stores the run's files, apart from its checkpoints, that have changed.
void RunMirror::store_run_files() {
  for (auto entry = fs::recursive_directory_iterator(folder_); entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string name = entry->path().lexically_relative(folder_);
    // Folders of checkpoints change while they are listed.
    const fs::path& path = entry->path();
    if (contains(left_out_, path.lexically_normal()) || path.filename() / "" == kCheckpoints) entry.disable_recursion_pending();
    if (entry->is_regular_file() && is_run_file(name)) store_file(name);
  }
}

void RunMirror::update() {
  check_owner();
  const Objects objects = list();
  check_owner(objects);
  for (const std::string& cut : steps_in(objects, /*whole=*/false)) remove_checkpoint(cut, objects);
  try {
    // The next checkpoint may be written meanwhile. The files are read before the list, so the list has the checkpoints that they name.
    const std::string latest = pointer_in(folder_ / kCheckpoints, "latest"), best = pointer_in(folder_ / kCheckpoints, "best");
    const std::vector<std::string> local = CheckpointFolder(folder_ / kCheckpoints, 1).list();
    std::vector<std::string> whole = steps_in(objects, /*whole=*/true), all = whole;
    for (const std::string& checkpoint : local) all.push_back(fs::path(checkpoint).filename());
    all = in_order(all);
    // Checkpoints of later steps are damaged or out of date, because the run was resumed from an earlier step, or belong to the next call.
    const std::string newest = is_step_folder(named_in(latest)) ? named_in(latest) : all.empty() ? "" : all.back();
    const std::int64_t step = newest.empty() ? -1 : step_of(newest);
    const auto known_best = objects.find(concat(kCheckpoints, "best"));
    const bool only_stored = best.empty() && known_best != objects.end();
    const std::string kept = named_in(only_stored ? text_of(known_best->first, known_best->second) : best);
    std::vector<std::string> old = passing_checkpoints(all, keep_.keep_every, kept, step);
    old.resize(old.size() - std::min(old.size(), static_cast<std::size_t>(keep_.keep_last)));
    for (const std::string& checkpoint : local) {
      const std::string name = fs::path(checkpoint).filename();
      if (step_of(name) > step || contains(old, name) || !fs::exists(fs::path(checkpoint) / kManifest)) continue;
      if (is_stored(name, objects)) continue;
      if (contains(whole, name)) clear_checkpoint(name, objects);
      store_checkpoint(checkpoint);
      whole.push_back(name);
    }
    for (const auto& [pointer, text] : {std::pair("latest", latest), std::pair("best", best)})
      if (contains(whole, named_in(text))) client_.put_text(concat(address_, kCheckpoints, pointer), text);
    store_run_files();
    std::erase_if(old, [&](const std::string& each) { return !contains(whole, each); });
    if (old.empty()) return;
    const Objects now = list();
    check_owner(now);
    for (const std::string& each : old) remove_checkpoint(each, now);
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

}  // namespace tessera
