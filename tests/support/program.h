#pragma once

#include <cstdio>
#include <string>
#include <sys/wait.h>

/// How tests run the programs of the build, as a user does from a shell.
namespace tessera {

struct Answer {
  int code = -1;     // exit code
  std::string text;  // standard output and error together
};

/// Runs a command of the shell, and waits for its end.
inline Answer answer_of_shell(const std::string& command) {
  Answer answer;
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return answer;
  char buffer[4096];
  while (const std::size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) answer.text.append(buffer, size);
  answer.code = WEXITSTATUS(pclose(pipe));
  return answer;
}

/// Runs `command`, a program of build/bin with its arguments, and waits for its end.
inline Answer answer_of(const std::string& command) {
  return answer_of_shell(TESSERA_BINARY_DIR "/bin/" + command);
}

}  // namespace tessera
