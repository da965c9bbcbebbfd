#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// Scalars in TensorBoard's format: FOLDER/events.out.tfevents.SECONDS.HOST.PID, TFRecord frames around protocol-buffer Events
/// (tensorflow/core/util/event.proto, version 2). Each event is one write(2), so after a kill all events except possibly the last
/// are complete.
class EventFile {
 public:
  /// Creates folder and file. first_step: steps done before this session; TensorBoard then drops later steps of an earlier session
  /// that was killed. Throws UserError.
  EventFile(const std::string& folder, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Writes the values of one step, {tag, value}. Returns false if the file cannot be written.
  bool scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);

  const std::string& path() const { return path_; }

 private:
  bool write(const std::string& event);

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tessera
