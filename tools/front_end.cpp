// bin/NAME of the programs on LibTorch, whose loading alone takes a second: reads the arguments, and only if there is something to
// run becomes libexec/tessera/NAME. The process stays the same, so signals and launchers see no difference.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include <unistd.h>

#include "tools/front_end.h"

int main(int argc, char** argv) {
  if (const auto code = tessera::tools::answer_at_once(argc, argv)) return *code;
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  const std::filesystem::path program =
      self.parent_path().parent_path() / "libexec" / "tessera" / self.filename();
  ::execv(program.c_str(), argv);
  std::cerr << self.filename().string() << ": cannot start " << program.string() << ": " << std::strerror(errno)
            << "; it belongs beside the folder of " << self.string() << '\n';
  return 1;
}
