#include <filesystem>

#include "src/base/printable.h"
#include "src/data/formats/data_files.h"
#include "src/evaluation/tasks/placeholder.h"
#include "src/evaluation/tasks/task_settings.h"
#include <tessera/base/text.h>
#include <tessera/config/file_path.h>

namespace tessera {

TextList config::Value<TextList>::read(const Node& node, const std::string& path, const TextList&) {
  TextList out;
  if (node.is_sequence()) {
    out.items = Value<std::vector<std::string>>::read(node, path, {});
    return out;
  }
  const std::string text = Value<std::string>::read(node, path, {});
  if (text.find(placeholder_of(text)) != std::string::npos) return {text};  // the text itself is a template, not a file's name
  const FilePath file = Value<FilePath>::read(node, path, {});
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file.name, ignored)) {
    fail(node, path,
         concat("there is no file \"", printable(text), "\"", searched_text(file.searched), ": give a list, or a file with one item per line"));
  }
  out.items = read_list(file);
  if (out.items.empty()) fail(node, path, concat(file, " is empty: expected one item per line"));
  return out;
}

std::optional<config::Problem> check_templates(const TextList& templates) {
  if (templates.items.empty())
    return config::Problem{"templates", "is empty: give at least one, such as \"a photo of a {}.\""};
  for (std::size_t i = 0; i < templates.items.size(); ++i) {
    if (templates.items[i].find(placeholder_of(templates.items[i])) == std::string::npos) {
      return config::Problem{"templates", concat("template ", i + 1, ", \"", printable(templates.items[i]),
                                                 "\", has no {} where the class name goes")};
    }
  }
  return std::nullopt;
}

std::optional<config::Problem> check_topk(const std::vector<std::int64_t>& topk) {
  if (topk.empty()) return config::Problem{"topk", "is empty: give at least one number, such as [1, 5]"};
  return std::nullopt;
}

}  // namespace tessera
