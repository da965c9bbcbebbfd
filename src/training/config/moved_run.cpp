#include "src/training/config/moved_run.h"

#include <filesystem>

#include <tessera/base/error.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using config::Node;

// Only a run has these files, so a config.yaml beside another folder of checkpoints does not count.
bool lies_in_run_folder(const fs::path& file) {
  const fs::path folder = file.parent_path();
  return file.filename() == "config.yaml" && (fs::exists(folder / "checkpoints" / "latest") || fs::exists(folder / "metrics.jsonl"));
}

fs::path without_slash(const fs::path& path) {
  return (path / "").parent_path();
}

struct Move {
  std::string file;
  fs::path from, to;
};

// Paths below the parent folder are those of other stages. They are replaced only if they exist nowhere else.
std::string moved(const std::string& text, const Move& move) {
  const fs::path path = without_slash(text);
  if (!path.is_absolute()) return text;
  const auto below = [&](const fs::path& folder) { return *path.lexically_relative(folder).begin() != ".."; };
  if (path == move.from) return move.to.string();
  if (below(move.from)) return (move.to / path.lexically_relative(move.from)).string();
  if (!below(move.from.parent_path()) || fs::exists(path)) return text;
  const fs::path beside = move.to.parent_path() / path.lexically_relative(move.from.parent_path());
  return fs::exists(beside) ? beside.string() : text;
}

Node moved(const Node& node, const Move& move) {
  if (node.is_scalar() && node.mark().file == move.file)
    return Node::scalar(moved(node.text(), move), node.mark(), node.quoted());
  return node.mapped(node.mark(), [&](std::size_t, const std::string&, const Node& child) { return moved(child, move); });
}

void check_storage(const Node& tree, const Move& move) {
  const Node* checkpoint = tree.find("checkpoint");
  for (const char* key : {"copy_to", "command"}) {
    const Node* value = checkpoint != nullptr ? checkpoint->find(key) : nullptr;
    if (value != nullptr && value->is_scalar() && value->mark().file == move.file && moved(value->text(), move) == value->text())
      user_error(move.file, ": is a copy of the run ", move.from.string(), ", which still exists and stores its checkpoints by checkpoint.",
                 key, ", ", value->text(), ": set it to another value, or to null (--set checkpoint.", key, "=null)");
  }
}

}  // namespace

std::string follow_moved_run(Node& tree, const std::string& path) {
  const Node* run = tree.find("run");
  const Node* folder = run != nullptr ? run->find("folder") : nullptr;
  if (folder == nullptr || !folder->is_scalar() || folder->mark().file != path || !lies_in_run_folder(path)) return {};
  const Move move{.file = path,
                  .from = without_slash(fs::absolute(folder->text()).lexically_normal()),
                  .to = fs::absolute(path).lexically_normal().parent_path()};
  std::error_code error;
  if (move.from == move.to || fs::equivalent(move.from, move.to, error)) return {};
  const bool copied = fs::exists(move.from / "checkpoints");
  if (copied) check_storage(tree, move);
  tree = moved(tree, move);
  return concat(path, ": was ", copied ? "copied" : "moved", " from the run folder ", move.from.string(), ": the run uses its own folder, ",
                move.to.string(), copied ? "; the original stays as it is" : "");
}

}  // namespace tessera
