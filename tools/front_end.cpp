// The front end bin/NAME of a program that uses LibTorch. LibTorch takes a second to load, so bin/NAME reads the arguments first and starts
// libexec/tessera/NAME only if there is something to run. Both run in the same process, so signals and launchers work as usual.
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include <unistd.h>

#include "tools/evaluate_arguments.h"
#include "tools/trainer_arguments.h"

int main(int argc, char** argv) {
  using namespace tessera;
  using namespace tessera::tools;
  TESSERA_ARGUMENTS arguments;  // the type is a definition of the build
  if (const auto code = parse(argc, argv, arguments)) return *code;
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  const std::filesystem::path program =
      self.parent_path().parent_path() / "libexec" / "tessera" / self.filename();
  ::execv(program.c_str(), argv);
  std::cerr << self.filename().string() << ": cannot start " << program.string() << ": " << std::strerror(errno)
            << "; the folder libexec must be next to the folder of " << self.string() << '\n';
  return 1;
}
