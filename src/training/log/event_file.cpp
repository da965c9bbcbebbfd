#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/host.h"
#include "src/training/log/event_file.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

// Returns the little-endian bytes of a number.
template <class Number>
std::string fixed(Number number) {
  std::string out;
  for (std::size_t i = 0; i < sizeof number; ++i) out += static_cast<char>(number >> (8 * i) & 0xFF);
  return out;
}

// In the wire format of protocol buffers, a key (field number and wire type) precedes each value.
enum WireType : std::uint64_t { kVarint = 0, kDouble = 1, kBytes = 2, kFloat = 5 };

std::string varint(std::uint64_t number) {
  std::string out;
  for (; number >= 0x80; number >>= 7) out += static_cast<char>((number & 0x7F) | 0x80);
  return out + static_cast<char>(number);
}

std::string field(std::uint64_t number, WireType type, const std::string& value) {
  return varint(number << 3 | type) + value;
}

std::string bytes_field(std::uint64_t number, const std::string& value) {
  return field(number, kBytes, varint(value.size()) + value);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns an Event message with the fields 1 (wall_time) and 2 (step), followed by `what`: the encoded field 3 (file_version), 5 (summary)
// or 7 (session_log).
std::string event(std::int64_t step, const std::string& what) {
  return field(1, kDouble, fixed(std::bit_cast<std::uint64_t>(seconds_now()))) +
         field(2, kVarint, varint(static_cast<std::uint64_t>(step))) + what;
}

// Returns the masked checksum of TFRecord. The mask makes it safe to compute checksums of data that contain checksums.
std::string masked_crc(const std::string& bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return fixed((crc >> 15 | crc << 17) + 0xA282EAD8U);
}

}  // namespace

EventFile::EventFile(const std::string& folder, std::int64_t first_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  path_ = concat(folder, "/events.out.tfevents.", static_cast<std::int64_t>(seconds_now()), ".", host_name(), ".", ::getpid());
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) user_error(path_, ": cannot write: ", std::strerror(errno));
  write(event(0, bytes_field(3, "brain.Event:2")));
  const std::string started = field(1, kVarint, varint(1));  // SessionLog.status = START
  write(event(first_step > 0 ? first_step + 1 : 0, bytes_field(7, started)));
}

EventFile::~EventFile() {
  ::close(descriptor_);
}

bool EventFile::scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;  // repeated Summary.Value messages, with the fields 1 (tag) and 2 (simple_value)
  for (const auto& [tag, value] : values)
    summary += bytes_field(1, bytes_field(1, tag) + field(2, kFloat, fixed(std::bit_cast<std::uint32_t>(
                                                                         static_cast<float>(value)))));
  return write(event(step, bytes_field(5, summary)));
}

bool EventFile::write(const std::string& event) {
  const std::string length = fixed(static_cast<std::uint64_t>(event.size()));
  const std::string frame = length + masked_crc(length) + event + masked_crc(event);
  return io::append(descriptor_, frame);
}

}  // namespace tessera
