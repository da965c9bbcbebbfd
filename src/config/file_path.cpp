#include <filesystem>
#include <ostream>

#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/file_path.h>
#include <tessera/config/shipped.h>

namespace tessera::config {

namespace fs = std::filesystem;

std::vector<std::string> search_folders(const Node& node) {
  const std::string here = fs::current_path().lexically_normal().string();
  if (node.mark().file.empty()) return {here};  // the value does not come from a file
  const std::string beside = fs::absolute(node.mark().file).lexically_normal().parent_path().string();
  if (beside == here) return {here};
  return {beside, here};
}

std::string origin_of(const Node& node, const std::string& path) {
  const std::string mark = node.mark().text();
  return mark + (mark.empty() || path.empty() ? "" : ": ") + printable(path);
}

std::string searched_text(const std::vector<std::string>& folders) {
  std::string text;
  for (const std::string& folder : folders) text += (text.empty() ? " in " : " or ") + folder;
  return text;
}

std::ostream& operator<<(std::ostream& out, const FilePath& path) {
  return out << path.name;
}

void require(const FilePath& path) {
  std::error_code ignored;
  if (fs::exists(path.name, ignored)) return;
  user_error(path.origin, path.origin.empty() ? "" : ": ", path.name, ": no such file or folder",
             searched_text(path.searched));
}

namespace {

// Settings are stored as YAML and JSON, which cannot hold other text than UTF-8. The name of the working folder need not be UTF-8.
void check_utf8(const std::string& name, const Node& node, const std::string& path) {
  if (!is_utf8(name)) fail(node, path, name + " is not UTF-8: rename the folder or the file");
}

// Returns the path as it was written, or its absolute path if it is in one of the folders.
FilePath looked_up(const Node& node, const std::string& path, std::vector<std::string> folders) {
  FilePath out(Value<std::string>::read(node, path, {}));
  out.origin = origin_of(node, path);
  check_utf8(out.name, node, path);
  if (out.empty()) return out;
  std::error_code ignored;
  if (fs::path(out.name).is_absolute()) return out;
  for (const std::string& folder : folders) {
    const fs::path candidate = (fs::path(folder) / out.name).lexically_normal();
    if (!fs::exists(candidate, ignored)) continue;
    out.name = candidate.string();
    check_utf8(out.name, node, path);
    return out;
  }
  out.searched = std::move(folders);
  return out;
}

}  // namespace

FilePath Value<FilePath>::read(const Node& node, const std::string& path, const FilePath&) {
  std::vector<std::string> folders = search_folders(node);
  if (const std::string shipped = shipped_folder(); node.text().starts_with("configs/") && !shipped.empty())
    folders.push_back(fs::path(shipped).parent_path().string());
  return looked_up(node, path, std::move(folders));
}

OutputPath Value<OutputPath>::read(const Node& node, const std::string& path, const OutputPath&) {
  OutputPath out;
  static_cast<FilePath&>(out) = looked_up(node, path, search_folders(node));
  if (!out.empty()) out.name = fs::absolute(out.name).lexically_normal().string();
  check_utf8(out.name, node, path);
  return out;
}

}  // namespace tessera::config
