#include "src/data/formats/published_tables.h"

#include <algorithm>
#include <filesystem>
#include <fnmatch.h>
#include <set>
#include <utility>

#include "src/base/printable.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/config/node.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using config::Node;
using Names = std::vector<std::string>;

const std::string kEnding = ".parquet";

std::string inside(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

/// Returns the header of a folder's README.md; null if there is none. A header that is not YAML causes a warning.
Node card_of(const std::string& folder) {
  const std::string path = inside(folder, "README.md");
  std::string text;
  try {
    std::error_code ignored;
    if (remote::is_remote(folder) ? !remote::parse_address(folder).is_hub() : !fs::is_regular_file(path, ignored)) return {};
    text = io::read_file(remote::LocalFile(path).path());
  } catch (const remote::MissingObject&) {
    return {};
  }
  const std::size_t end = text.find("\n---", 3);
  if (!text.starts_with("---") || end == std::string::npos) return {};
  try {
    return config::parse_yaml(text.substr(3, end - 2), path);
  } catch (const UserError& error) {
    log::warning(error.what(), ": the header is not read");
    return {};
  }
}

std::string text_of(const Node& map, std::string_view key) {
  const Node* found = map.find(key);
  return found != nullptr && found->is_scalar() ? found->text() : "";
}

/// Returns the texts of a node that is a text or a list of texts.
Names texts_of(const Node* node) {
  Names out;
  if (node != nullptr && node->is_scalar()) out.push_back(node->text());
  if (node != nullptr && node->is_sequence())
    for (const Node& item : node->items())
      if (item.is_scalar()) out.push_back(item.text());
  return out;
}

/// Returns the configurations that a header lists.
std::vector<Node> configurations_in(const Node& card) {
  std::vector<Node> out;
  if (const Node* list = card.find("configs"); list != nullptr && list->is_sequence())
    for (const Node& item : list->items())
      if (!text_of(item, "config_name").empty()) out.push_back(item);
  return out;
}

/// The Parquet files in a folder and in its subfolders.
class Tables {
 public:
  explicit Tables(std::string folder) : folder_(std::move(folder)) {
    constexpr int deepest = 3;
    if (remote::is_remote(folder_)) return;
    std::error_code failed;
    for (fs::recursive_directory_iterator entry(folder_, failed), end; entry != end && !failed; entry.increment(failed)) {
      const bool hidden = entry->path().filename().string().starts_with(".");
      if (hidden || entry.depth() == deepest) entry.disable_recursion_pending();
      if (!hidden && entry->path().extension() == kEnding) names_.push_back(entry->path().lexically_relative(folder_).string());
    }
    if (failed) user_error(folder_, ": cannot be listed: ", failed.message());
    std::ranges::sort(names_);
  }

  /// Returns the files whose names in the folder match a pattern. ** stands for folders, too, if the folder is local.
  Names matching(const std::string& written) const {
    const std::string pattern = written.starts_with("./") ? written.substr(2) : written;
    Names out;
    if (!remote::is_remote(folder_)) {
      const int flags = pattern.find("**") == std::string::npos ? FNM_PATHNAME : 0;
      for (const std::string& name : names_)
        if (::fnmatch(pattern.c_str(), name.c_str(), flags) == 0) out.push_back(inside(folder_, name));
      return out;
    }
    try {
      out = remote::store()->expand(inside(folder_, pattern), kEnding);
      std::erase_if(out, [](const std::string& name) { return !name.ends_with(kEnding); });
      remote::store()->look_up_all(out);
    } catch (const remote::MissingObject&) {
      return {};
    }
    return out;
  }

  /// Returns the files of a split below `prefix` ("" or FOLDER/) by their names.
  Names of_split(const std::string& prefix, const std::string& split) const {
    const std::string file = split + "[-.0-9]*parquet";  // train.parquet, train-00000-of-00002.parquet, but not train_more-...
    for (const std::string& pattern : {prefix + "data/" + file, prefix + file, concat(prefix, split, "/*", kEnding)})
      if (Names found = matching(pattern); !found.empty()) return found;
    return {};
  }

  /// Returns the local folders that may be configurations.
  Names configurations(const std::string& split) const {
    const std::set<std::string> others = {"data", "train", "validation", "test", split};
    std::set<std::string> out;
    for (const std::string& name : names_)
      if (const std::size_t slash = name.find('/'); slash != std::string::npos && !others.contains(name.substr(0, slash)))
        out.insert(name.substr(0, slash));
    return {out.begin(), out.end()};
  }

 private:
  const std::string folder_;
  Names names_;  // relative to a local folder
};

[[noreturn]] void refuse_choice(const std::string& folder, const Names& configurations) {
  user_error(folder, ": holds the configurations ", printable(join_names(configurations)),
             ": choose one of them with the source's setting, as in configuration: ", printable(configurations[0]));
}

Names of_prefix(const Tables& tables, const std::string& prefix, const std::string& split) {
  Names out = tables.of_split(prefix, split.empty() ? "train" : split);
  for (const char* all : {"data/*.parquet", "*.parquet"})
    if (out.empty() && split.empty()) out = tables.matching(prefix + all);
  return out;
}

/// Returns the files of a split of a configuration in the header.
Names of_configuration(const std::string& folder, const Tables& tables, const Node& entry, const std::string& split) {
  const std::string name = text_of(entry, "config_name"), where = text_of(entry, "data_dir");
  const std::string prefix = where.empty() || where == "." ? "" : inside(where, "");
  const Node* listed = entry.find("data_files");
  if (listed == nullptr) return of_prefix(tables, prefix, split);
  std::vector<std::pair<std::string, Names>> splits;
  if (const Names plain = texts_of(listed); !plain.empty()) splits.emplace_back("train", plain);
  if (listed->is_sequence())
    for (const Node& item : listed->items())
      if (item.is_map()) splits.emplace_back(text_of(item, "split"), texts_of(item.find("path")));
  const std::string wanted = !split.empty() ? split : splits.size() == 1 ? splits[0].first : "train";
  const auto found = std::ranges::find(splits, wanted, &std::pair<std::string, Names>::first);
  if (found == splits.end()) {
    Names names;
    for (const auto& [each, patterns] : splits) names.push_back(each);
    user_error(folder, ": the configuration ", printable(name), " has no split ", printable(wanted), "; its splits are ",
               printable(join_names(names)), " (setting `split`)");
  }
  std::set<std::string> files;
  for (const std::string& pattern : found->second)
    for (const std::string& file : tables.matching(prefix + pattern)) files.insert(file);
  if (files.empty())
    user_error(inside(folder, "README.md"), ": configuration ", printable(name), ": no Parquet file matches ",
               printable(join_names(found->second)), ", the files of the split ", printable(wanted));
  return {files.begin(), files.end()};
}

/// Returns the entry of the configuration with this name or, if the name is empty, of the default configuration.
const Node& chosen(const std::string& folder, const std::vector<Node>& entries, const std::string& wanted) {
  Names names;
  for (const Node& entry : entries) names.push_back(text_of(entry, "config_name"));
  const auto named = [&](const std::string& name) { return std::ranges::find(names, name) - names.begin(); };
  const auto marked = std::ranges::find_if(entries, [](const Node& entry) { return text_of(entry, "default") == "true"; });
  if (wanted.empty() && (entries.size() == 1 || marked != entries.end())) return entries.size() == 1 ? entries[0] : *marked;
  const auto place = static_cast<std::size_t>(named(wanted.empty() ? "default" : wanted));
  if (place < entries.size()) return entries[place];
  if (wanted.empty()) refuse_choice(folder, names);
  user_error(folder, ": has no configuration ", printable(wanted), "; its configurations are ", printable(join_names(names)));
}

/// Returns the names of a column's classes in one entry of `dataset_info`; empty if they are not numbered 0, 1, ...
Names class_names_in(const Node& info, const std::string& column) {
  const Node* features = info.find("features");
  if (features == nullptr || !features->is_sequence()) return {};
  for (const Node& feature : features->items()) {
    const Node* type = text_of(feature, "name") == column ? feature.find("dtype") : nullptr;
    const Node* names = type != nullptr && type->find("class_label") != nullptr ? type->find("class_label")->find("names") : nullptr;
    if (names == nullptr) continue;
    if (!names->is_map()) return texts_of(names);
    Names out;
    for (std::size_t i = 0; i < names->members().size(); ++i) {
      const Node* name = names->find(std::to_string(i));
      if (name == nullptr || !name->is_scalar()) return {};
      out.push_back(name->text());
    }
    return out;
  }
  return {};
}

}  // namespace

bool lists_configurations(const std::string& folder) {
  return !configurations_in(card_of(folder)).empty();
}

PublishedTables published_tables(const std::string& folder, const TablePart& part) {
  const Tables tables(folder);
  if (const std::vector<Node> entries = configurations_in(card_of(folder)); !entries.empty()) {
    const Node& entry = chosen(folder, entries, part.configuration);
    return {of_configuration(folder, tables, entry, part.split), text_of(entry, "config_name")};
  }
  if (!part.configuration.empty()) {
    Names files = of_prefix(tables, part.configuration + "/", part.split);
    if (const Names others = tables.configurations(part.split); files.empty() && !others.empty())
      user_error(folder, ": has no Parquet files of the configuration ", printable(part.configuration),
                 part.split.empty() ? "" : concat(" and the split ", printable(part.split)), "; its folders are ",
                 printable(join_names(others)));
    return {files, part.configuration};
  }
  if (Names files = of_prefix(tables, "", part.split); !files.empty()) return {files, ""};
  if (Names files = of_prefix(tables, "default/", part.split); !files.empty()) return {files, "default"};
  const Names configurations = tables.configurations(part.split);
  if (configurations.size() > 1) refuse_choice(folder, configurations);
  if (configurations.empty()) return {};
  return {of_prefix(tables, configurations[0] + "/", part.split), configurations[0]};
}

Names published_class_names(const std::string& file, const std::string& configuration, const std::string& column) {
  Names folders;
  if (!remote::is_remote(file)) {
    fs::path folder = fs::absolute(file).parent_path();
    for (int i = 0; i < 3; ++i, folder = folder.parent_path()) folders.push_back(folder.string());
  } else {
    folders.push_back(file.substr(0, file.size() - remote::parse_address(file).key.size()));
  }
  for (const std::string& folder : folders) {
    const Node card = card_of(folder);
    const Node* info = card.find("dataset_info");
    if (info == nullptr) continue;
    std::set<Names> found;  // by configuration; without one, all that list the column must agree
    for (const Node& entry : info->is_sequence() ? info->items() : std::vector<Node>{*info})
      if (const std::string name = text_of(entry, "config_name"); configuration.empty() || name.empty() || name == configuration)
        if (Names names = class_names_in(entry, column); !names.empty()) found.insert(std::move(names));
    return found.size() == 1 ? *found.begin() : Names();
  }
  return {};
}

}  // namespace tessera
