#include "src/base/job_error.h"
#include <tessera/base/error.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <iostream>
#include <new>
#include <string_view>

namespace tessera {
namespace {

// c10::Error appends a C++ backtrace to what(), which users should not see. This function cuts it from the text instead of calling a method
// of c10::Error, because this library must not depend on LibTorch.
std::string without_backtrace(const std::string& text) {
  return text.substr(0, std::min(text.find("\nException raised from"), text.find("\nframe #0")));
}

bool is_lack_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         std::string_view(error.what()).find("DefaultCPUAllocator: can't allocate memory") != std::string_view::npos;
}

}  // namespace

int run_program(const std::string& name, const std::function<int()>& body) {
  std::signal(SIGCHLD, SIG_DFL);
  // If the reader of stdout or stderr ends (trainer | head), the program goes on, because its work would be lost. Unlike SIG_IGN, a handler
  // does not carry over to the programs that this one starts.
  std::signal(SIGPIPE, [](int) {});
  // One string is one write, so ranks that share a terminal cannot write into each other's lines.
  try {
    return body();
  } catch (const UserError& error) {
    std::cerr << concat(name, ": ", error.what(), "\n");
    return 2;
  } catch (const JobError& error) {
    std::cerr << concat(name, ": ", error.what(), "\n");
  } catch (const std::exception& error) {
    const char* cause = is_lack_of_memory(error) ? ": not enough memory, try a smaller model, batch or data set: " : ": internal error: ";
    std::cerr << concat(name, cause, without_backtrace(error.what()), "\n");
  }
  return 1;
}

}  // namespace tessera
