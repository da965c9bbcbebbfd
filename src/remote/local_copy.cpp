#include "src/remote/local_copy.h"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>

#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::remote {
namespace {

constexpr const char* kModel = "model.safetensors";
constexpr const char* kManifest = "manifest.json";  // of a checkpoint
constexpr const char* kOpenClip = "open_clip_config.json";
constexpr std::size_t kModelsKept = 16;

bool ends_with_one_of(const std::string& name, std::initializer_list<const char*> endings) {
  return std::ranges::any_of(endings, [&](const char* ending) { return name.ends_with(ending); });
}

bool is_pickled(const std::string& name) {
  return ends_with_one_of(name, {".bin", ".pt", ".pth"});
}

bool holds_weights(const std::string& name) {
  return name.ends_with(".safetensors") || is_pickled(name);
}

bool describes(const std::string& name) {
  return ends_with_one_of(name, {".json", ".txt", ".model", ".bpe", ".txt.gz", ".tiktoken", ".yaml"});
}

bool is_pointer(const std::string& name) {
  return name == "latest" || name == "best";
}

/// The files of a remote folder, whose address ends in /.
struct Folder {
  std::string address;
  std::vector<std::string> names;
};

Folder folder_at(const std::string& address) {
  Folder out{address, {}};
  for (const std::string& each : store()->list(address)) out.names.push_back(each.substr(address.size()));
  std::erase(out.names, "");  // the object that some programs store for an empty folder
  return out;
}

std::string parent_of(const std::string& address) {
  return address.substr(0, address.rfind('/') + 1);
}

// Returns the folder of the checkpoint that latest or best in this folder names.
Folder pointed_at(const Folder& folder, const std::string& pointer) {
  const std::string file = folder.address + pointer;
  // In a bucket, a run may replace the file at any time; on the Hub, it belongs to a commit, and may be read without a connection.
  const std::string text = parse_address(file).is_hub() ? io::read_file(LocalFile(file).path()) : store()->read_small(file),
                    word = text.substr(0, text.find_first_of(" \n"));
  if (!word.starts_with("step_") || word.find('/') != std::string::npos) user_error(file, ": names no checkpoint");
  Folder out = folder_at(folder.address + word + "/");
  if (out.names.empty()) user_error(file, ": names ", word, ", which the store does not have: name another checkpoint");
  return out;
}

// Returns the folder with the weights to which the name of a folder refers.
Folder find_folder(const std::string& address) {
  Folder found = folder_at(address);
  if (std::ranges::any_of(found.names, holds_weights)) return found;
  if (!contains(found.names, "latest")) found = folder_at(address + "checkpoints/");
  if (contains(found.names, "latest")) return pointed_at(found, "latest");
  user_error(address,
             ": holds neither weights nor checkpoints/latest: expected a model file, a published model, a checkpoint "
             "or a run");
}

// Fetches files, and returns the folder in the cache in which they have their own names.
std::string fetch(const Folder& from, const std::vector<std::string>& names) {
  static std::mutex mutex;
  static auto* const kept =
      new std::deque<std::pair<std::string, std::vector<Lease>>>;  // never destroyed, because threads may use the files to the end
  const auto source = store();
  std::vector<std::string> missing;
  std::uint64_t bytes = 0;
  for (const std::string& name : names)
    if (const std::string address = from.address + name; !source->expects(address)) {
      missing.push_back(address);
      bytes += source->look_up(address).size;
    }
  if (!missing.empty())
    log::info("fetching ", missing.size() == 1 ? missing[0] : concat(missing.size(), " files of ", from.address), ", ",
              format_bytes(static_cast<double>(bytes)));
  std::vector<Lease> leases;
  std::vector<std::pair<std::string, std::string>> links;
  for (const std::string& name : names) {
    leases.push_back(source->open(from.address + name));
    links.emplace_back(file_name(from.address + name), leases.back().path());
  }
  const std::string address = from.address.substr(0, from.address.size() - 1);
  const std::string out = source->cache().link_folder(address.substr(address.rfind('/') + 1), links);
  const std::lock_guard lock(mutex);
  std::erase_if(*kept, [&](const auto& each) { return each.first == out; });
  kept->emplace_back(out, std::move(leases));
  if (kept->size() > kModelsKept) kept->pop_front();
  return out;
}

std::string copy_of_file(const std::string& address) {
  const auto source = store();
  Folder folder{parent_of(address), {}};
  std::vector<std::string> names = {address.substr(folder.address.size())};
  source->look_up(address, /*again=*/true);
  const Address parts = parse_address(address);
  if (parts.is_hub() && is_pickled(address)) {
    folder = folder_at(folder.address);
    std::ranges::copy_if(folder.names, std::back_inserter(names), describes);
    // The configuration of transformers belongs to a folder, whose weights are those that the user names.
    if (contains(names, "config.json") && !contains(names, kOpenClip)) return fetch(folder, names);
  } else if (parts.has_folders() && !address.ends_with(kModel)) {
    try {
      source->look_up(folder.address + kOpenClip, /*again=*/true);
      folder = folder_at(folder.address);
      std::ranges::copy_if(folder.names, std::back_inserter(names), describes);
    } catch (const UserError&) {
      // The file stands alone, or the store does not tell what is beside it.
    }
  }
  return fetch(folder, names) + "/" + file_name(address);
}

}  // namespace

std::vector<std::string> model_files(const std::vector<std::string>& names) {
  if (contains(names, kManifest) && contains(names, kModel)) return {kModel};
  const bool safetensors =
      std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(".safetensors"); });
  std::vector<std::string> out;
  std::ranges::copy_if(names, std::back_inserter(out), [&](const std::string& name) {
    return describes(name) || name.ends_with(".safetensors") || (!safetensors && is_pickled(name));
  });
  return out;
}

std::string local_copy(const std::string& name, Wanted wanted) {
  if (!is_remote(name)) return name;
  std::string address = name;
  if (!parse_address(address).has_folders()) return copy_of_file(address);
  while (address.ends_with('/')) address.pop_back();
  const std::string last = address.substr(address.rfind('/') + 1);
  if (holds_weights(last)) return copy_of_file(address);
  const Folder found = is_pointer(last) ? pointed_at(folder_at(parent_of(address)), last) : find_folder(address + "/");
  const std::vector<std::string> needed = model_files(found.names);
  if (const auto pickled = std::ranges::find_if(needed, is_pickled); pickled != needed.end() && parse_address(address).is_hub())
    user_error(address, ": has no weights in .safetensors files, only pickled ones: if you trust the author, name the file: ",
               found.address, *pickled);
  return fetch(found, wanted == Wanted::everything ? found.names : needed);
}

std::string local_copy_of(const config::FilePath& path) {
  if (!is_remote(path.name)) {
    config::require(path);
    return path.name;
  }
  try {
    return local_copy(path.name);
  } catch (const UserError& error) {
    user_error(path.origin, path.origin.empty() ? "" : ": ", error.what());
  }
}

}  // namespace tessera::remote
