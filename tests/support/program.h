#pragma once

#include <cstdio>
#include <string>
#include <sys/wait.h>

/// Runs the programs of the build in tests, as a user does from a shell.
namespace tessera {

struct Answer {
  int code = -1;     // exit code
  std::string text;  // standard output and standard error together
};

/// Runs a shell command and waits until it ends.
inline Answer answer_of_shell(const std::string& command) {
  Answer answer;
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return answer;
  char buffer[4096];
  while (const std::size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) answer.text.append(buffer, size);
  answer.code = WEXITSTATUS(pclose(pipe));
  return answer;
}

/// Runs `command`, a program of build/bin with its arguments, and waits until it ends.
inline Answer answer_of(const std::string& command) {
  return answer_of_shell(TESSERA_BINARY_DIR "/bin/" + command);
}

}  // namespace tessera
