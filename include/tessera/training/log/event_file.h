#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// Scalars in TensorBoard's format: FOLDER/events.out.tfevents.SECONDS.HOST.PID, TFRecord frames around protocol-buffer
/// Events (tensorflow/core/util/event.proto, version 2). Each event is one write(2), so a killed run leaves whole ones,
/// but for the last.
class EventFile {
 public:
  /// Creates folder and file. first_step: steps done before this session; what TensorBoard holds of later ones (from a
  /// session that was killed) it drops. Throws UserError.
  EventFile(const std::string& folder, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Writes the values of one step, {tag, value}. False when the file cannot be written.
  bool scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);

  const std::string& path() const { return path_; }

 private:
  bool write(const std::string& event);

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tessera
