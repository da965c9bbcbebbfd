#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace tessera {

/// Writes a run's list of skipped samples, one JSON object per line: {"epoch", "key", "reason", "text"}. A sample is listed once for each
/// reason, no matter how often it is skipped; a resumed run appends to the file. After `most` lines, a final line states that further
/// samples are only counted. The file is created with its first line. If it cannot be written, a warning is logged once and the run
/// continues.
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
  // Sorted fingerprints of keys with their reasons. They are in one block of memory, because many small long-lived allocations
  // between large freed ones would fragment the heap.
  std::vector<std::uint64_t> listed_;
  bool full_ = false;
  std::ofstream file_;
};

}  // namespace tessera
