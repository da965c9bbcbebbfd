#include "src/training/checkpoint/shell_command.h"

#include <cerrno>
#include <cstring>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/base/error.h>

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

}  // namespace tessera
