#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// Writes scalars in TensorBoard's format. The file FOLDER/events.out.tfevents.SECONDS.HOST.PID holds TFRecord frames with
/// protocol-buffer Events (tensorflow/core/util/event.proto, version 2). Each event is one write(2), so if the process is killed,
/// all events except possibly the last are complete. An event that does not fit on the disk is left out.
class EventFile {
 public:
  /// Creates the folder and the file. `first_step` is the number of steps done before this session. With it, TensorBoard drops the values
  /// of later steps, which a killed session may have written. Throws UserError.
  EventFile(const std::string& folder, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Writes the values of one step, {tag, value}. Returns false and sets errno if the file cannot be written.
  bool scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);

  const std::string& path() const { return path_; }

 private:
  bool write(const std::string& event);

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tessera
