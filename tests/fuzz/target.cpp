#include "tests/fuzz/target.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sys/mman.h>
#include <unistd.h>

#include <tessera/base/text.h>

namespace tessera::fuzz {

void broken(const std::string& text) {
  std::fprintf(stderr, "broken contract: %s\n", text.c_str());
  std::abort();
}

void check_message(const std::exception& error) {
  const std::string text = error.what();
  if (text.empty()) broken("an error without a message");
  if (text.size() > 4000) broken("a message of " + std::to_string(text.size()) + " bytes: " + text.substr(0, 200));
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) broken("a control character in the message: " + text);
  if (!is_utf8(text)) broken("a message that is not UTF-8: " + text);
}

InputFile::InputFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  if (descriptor_ < 0) broken("cannot create a file in memory");
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

InputFile::~InputFile() {
  ::close(descriptor_);
}

InputFolder::InputFolder()
    : path_((std::filesystem::exists("/dev/shm") ? "/dev/shm/tessera_fuzz_" : "/tmp/tessera_fuzz_") +
            std::to_string(::getpid())) {
  std::filesystem::create_directories(path_);
}

InputFolder::~InputFolder() {
  std::filesystem::remove_all(path_);
}

void InputFile::write(std::string_view bytes) {
  const bool written = ::ftruncate(descriptor_, 0) == 0 &&
                       ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
  if (!written) broken("cannot write the input file");
}

}  // namespace tessera::fuzz
