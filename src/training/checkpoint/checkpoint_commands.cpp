#include "src/training/checkpoint/checkpoint_commands.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera {

void run_shell_command(const std::string& setting, const std::string& command,
                       const std::vector<std::string>& arguments, const std::string& about) {
  std::vector<std::string> words = {"sh", "-c", command, "sh"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  const int failure = ::posix_spawn(&child, "/bin/sh", nullptr, nullptr, pointers.data(), environ);
  if (failure != 0) user_error(setting, ": cannot start /bin/sh: ", std::strerror(failure));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) user_error(setting, ": ", command, ": cannot wait for its end: ", std::strerror(errno), " ", about);
  if (status != 0)
    user_error(setting, ": ", command, ": failed ",
               WIFEXITED(status) ? concat("with exit code ", WEXITSTATUS(status)) : "by a signal", " ", about);
}

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
