#include <tessera/base/host.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <dlfcn.h>
#include <unistd.h>

namespace tessera {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string code_folder() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&code_folder), &self) == 0 || self.dli_fname == nullptr) return {};
  std::error_code unknown;
  return std::filesystem::canonical(self.dli_fname, unknown).parent_path().string();
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
