#pragma once

#include <cstdio>
#include <string>
#include <sys/wait.h>

#include <gtest/gtest.h>

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

/// Runs `command`, expects it to succeed, and returns what it printed.
inline std::string output_of(const std::string& command) {
  const Answer answer = answer_of(command);
  EXPECT_EQ(answer.code, 0) << command << "\n" << answer.text;
  return answer.text;
}

/// Expects `command` to end with exit code 2. Returns what it printed.
inline std::string refusal_of(const std::string& command) {
  const Answer answer = answer_of(command);
  EXPECT_EQ(answer.code, 2) << command << "\n" << answer.text;
  return answer.text;
}

/// Expects `command` to end with exit code 2 and to print only the line `text`.
inline void expect_refused(const std::string& command, const std::string& text) {
  EXPECT_EQ(refusal_of(command), text + "\n") << command;
}

}  // namespace tessera
