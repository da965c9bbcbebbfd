#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>

namespace tessera {

/// Thrown if a stream's command fails, or if its bytes cannot be read or decompressed. The reader may try again.
class StreamError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A sequence of bytes that is read from start to end.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Reads at least one and at most `size` bytes. Returns their number, or 0 at the end of a complete stream. Throws
  /// StreamError.
  virtual std::size_t read(char* out, std::size_t size) = 0;
};

/// How long a read waits for a command that writes no output. After a stop request, reads throw Stopped.
struct StreamWaitPolicy {
  std::chrono::milliseconds timeout{60'000};
  std::stop_token stop;
};

/// Opens a file, of which a remote one is fetched first, or the output of a shell command ("pipe:COMMAND"). The command runs in its own
/// process group, which is killed when the stream is destroyed. Throws StreamError if the file cannot be opened or the command cannot be
/// started.
std::unique_ptr<ByteStream> open_bytes(const std::string& address, const StreamWaitPolicy& wait_policy);

/// Decompresses gzip, zstd, bzip2 and xz, and passes anything else through unchanged.
std::unique_ptr<ByteStream> decompress(std::unique_ptr<ByteStream> bytes);

}  // namespace tessera
