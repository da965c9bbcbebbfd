#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <sys/types.h>

namespace tessera {

/// A stream that failed: its command, its bytes. Whoever reads it may try again.
class StreamError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Bytes one after the other.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// At least one and at most `size` bytes; 0 at the end, which comes only when all went well. Throws StreamError.
  virtual std::size_t read(char* out, std::size_t size) = 0;
};

/// How long a command may give no byte, and who may end the waiting (Stopped is thrown then).
struct StreamWaitPolicy {
  std::chrono::milliseconds timeout{60'000};
  std::stop_token stop;
};

/// A local file, or what a command of the shell writes ("pipe:COMMAND"). The command runs in a process group of its
/// own, which ends with this object. Throws StreamError when it cannot be started.
std::unique_ptr<ByteStream> open_bytes(const std::string& address, const StreamWaitPolicy& wait_policy);

/// Decompresses gzip, zstd, bzip2 and xz, and gives anything else as it is.
std::unique_ptr<ByteStream> decompress(std::unique_ptr<ByteStream> bytes);

}  // namespace tessera
