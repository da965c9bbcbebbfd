#include <filesystem>

#include "src/training/checkpoint/fetch_checkpoint.h"
#include "src/training/checkpoint/shell_command.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

std::pair<std::string, Checkpoint> newest_whole(const std::string& brought) {
  auto newest = load_newest_checkpoint(CheckpointFolder(brought, 1));
  if (!newest)
    user_error("checkpoint.fetch_command: fetched ",
               std::filesystem::directory_iterator(brought)->path().filename().string(),
               ", but no checkpoint: expected folders like step_0001000 in the folder passed as $1");
  return std::move(*newest);
}

}  // namespace

std::optional<std::pair<std::string, Checkpoint>> fetch_checkpoint(const std::string& command,
                                                                   const std::string& run_name,
                                                                   const std::string& folder) {
  namespace fs = std::filesystem;
  const std::string brought = folder + "/.writing_fetched";  // the prefix lets remove_leftovers() find the folder if a fetch is interrupted
  try {
    fs::remove_all(brought);
    fs::create_directories(brought);
    run_shell_command("checkpoint.fetch_command", command, {brought, run_name},
                      "(if nothing is stored yet, it must exit with 0 and fetch nothing)");
    if (fs::is_empty(brought)) {
      fs::remove_all(brought);
      return std::nullopt;
    }
    auto [newest, checkpoint] = newest_whole(brought);
    const fs::path target = fs::path(folder) / fs::path(newest).filename();
    fs::remove_all(target);  // a damaged checkpoint may exist there
    fs::rename(newest, target);
    io::write_file(folder + "/latest", target.filename().string() + "\n");
    fs::remove_all(brought);
    return std::pair{target.string(), std::move(checkpoint)};
  } catch (const fs::filesystem_error& problem) {
    user_error("checkpoint.fetch_command: ", problem.path1().string(), ": ", problem.code().message());
  }
}

}  // namespace tessera
