#pragma once

#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <utility>

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

  std::string path_;
  std::int64_t most_ = 0;
  bool opened_ = false;
  std::set<std::pair<std::string, std::string>> listed_;  // key, reason
  bool full_ = false;
  std::ofstream file_;
};

}  // namespace tessera
