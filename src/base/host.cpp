#include "src/base/host.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include <dlfcn.h>
#include <unistd.h>

namespace tessera {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string machine_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return host_name() + '/' + boot;
}

std::string code_folder() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&code_folder), &self) == 0 || self.dli_fname == nullptr) return {};
  // The name of a program that was found through PATH has no folder.
  const bool has_folder = std::string_view(self.dli_fname).find('/') != std::string_view::npos;
  std::error_code unknown;
  return std::filesystem::canonical(has_folder ? self.dli_fname : "/proc/self/exe", unknown).parent_path().string();
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    const bool plain = !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                               "0123456789_-+=./:,@%") == std::string::npos;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += (line.empty() ? "" : " ") + (plain ? word : quoted + "'");
  }
  return line;
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return shell_line(words);
}

}  // namespace tessera
