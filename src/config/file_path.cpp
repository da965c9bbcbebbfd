#include <filesystem>

#include <tessera/config/file_path.h>

namespace tessera::config {

FilePath Value<FilePath>::read(const Node& node, const std::string& path, const FilePath&) {
  namespace fs = std::filesystem;
  const std::string name = Value<std::string>::read(node, path, {});
  const fs::path beside = fs::path(node.mark().file).parent_path() / name;
  std::error_code ignored;
  return fs::path(name).is_relative() && fs::is_regular_file(beside, ignored) ? beside.lexically_normal().string()
                                                                              : name;
}

}  // namespace tessera::config
