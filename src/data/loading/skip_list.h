#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace tessera {

/// The file of a run that lists samples left out, one JSON object a line: {"epoch", "key", "reason", "text"}. A sample
/// is listed once for each of its reasons, however often it comes; a run that goes on adds to the file. After `most`
/// lines a last one says that further samples are only counted. The file appears with its first line. A file that
/// cannot be written is warned of once; it does not stop a run.
class SkipList {
 public:
  SkipList() = default;  // lists nothing
  SkipList(std::string path, std::int64_t most) : path_(std::move(path)), most_(most) {}

  void note(std::int64_t epoch, const std::string& key, const std::string& reason, const std::string& text);

 private:
  void open();
  void write(const std::string& line);
  bool is_new(const std::string& key, const std::string& reason);

  std::string path_;
  std::int64_t most_ = 0;
  bool opened_ = false;
  // Fingerprints of keys with their reasons, sorted. In one block: small ones that stay, made between large ones that
  // go, would leave holes all over the heap.
  std::vector<std::uint64_t> listed_;
  bool full_ = false;
  std::ofstream file_;
};

}  // namespace tessera
