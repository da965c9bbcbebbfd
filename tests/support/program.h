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

/// Runs `command`, a program of build/bin with its arguments, and waits for its end.
inline Answer answer_of(const std::string& command) {
  Answer answer;
  std::FILE* const pipe = popen((TESSERA_BINARY_DIR "/bin/" + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return answer;
  char buffer[4096];
  while (const std::size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) answer.text.append(buffer, size);
  answer.code = WEXITSTATUS(pclose(pipe));
  return answer;
}

}  // namespace tessera
