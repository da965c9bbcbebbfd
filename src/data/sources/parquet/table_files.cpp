#include "src/data/sources/parquet/table_files.h"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json json_file(const fs::path& path) {
  const Json json = Json::parse(io::read_file(path.string()), nullptr, false);
  if (!json.is_object()) user_error(path.string(), ": expected a JSON object, as save_to_disk writes it");
  return json;
}

std::vector<std::string> files_of_saved(const fs::path& folder) {
  const fs::path state = folder / "state.json";
  const Json json = json_file(state);
  std::vector<std::string> out;
  if (const auto files = json.find("_data_files"); files != json.end() && files->is_array())
    for (const Json& each : *files)
      if (each.is_object() && each.contains("filename") && each["filename"].is_string())
        out.push_back((folder / each["filename"].get<std::string>()).string());
  if (out.empty()) user_error(state.string(), ": lists no files (_data_files)");
  return out;
}

[[noreturn]] void refuse_splits(const fs::path& folder) {
  const Json json = json_file(folder / "dataset_dict.json");
  std::vector<std::string> splits;
  if (const auto names = json.find("splits"); names != json.end() && names->is_array())
    for (const Json& each : *names)
      if (each.is_string()) splits.push_back(each.get<std::string>());
  user_error(folder.string(), ": holds the splits ", join_names(splits),
             ": name one of them, as in path: ", (folder / (splits.empty() ? "train" : splits[0])).string());
}

bool holds(const fs::path& folder, const std::string& ending) {
  std::error_code ignored;
  return std::ranges::any_of(fs::directory_iterator(folder, ignored),
                             [&](const fs::directory_entry& entry) { return entry.path().extension() == ending; });
}

}  // namespace

std::vector<std::string> table_files(const PathList& paths) {
  std::vector<std::string> out;
  for (const std::string& item : paths.items) {
    const fs::path folder = local_path(item);
    std::error_code ignored;
    if (fs::exists(folder / "state.json", ignored)) {
      for (std::string& path : files_of_saved(folder)) out.push_back(std::move(path));
      continue;
    }
    if (fs::exists(folder / "dataset_dict.json", ignored)) refuse_splits(folder);
    const bool arrow = fs::is_directory(folder, ignored) && !holds(folder, ".parquet") && holds(folder, ".arrow");
    for (std::string& path : expand_paths({{item}, paths.origin, paths.searched}, arrow ? ".arrow" : ".parquet"))
      out.push_back(std::move(path));
  }
  return out.empty() ? expand_paths(paths, ".parquet") : out;
}

}  // namespace tessera
