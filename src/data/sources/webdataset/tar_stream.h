#pragma once

#include <memory>
#include <string>

#include "src/data/formats/byte_stream.h"
#include <tessera/io/tar.h>

namespace tessera {

/// Members of a tar that comes as a stream, in order.
class TarStream {
 public:
  explicit TarStream(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {}

  /// The next plain file: its name, place and size. False at the end, which is the archive's and the stream's. What
  /// content() has not taken of the last one is passed over. Throws StreamError: no tar, cut off, damaged.
  bool next(io::TarMember& member);

  /// The bytes of that file.
  std::string content();

 private:
  std::string take(std::uint64_t size);
  void pass_over(std::uint64_t size);
  void drain();

  std::unique_ptr<ByteStream> bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t content_ = 0, filling_ = 0;  // of the member at hand: bytes not taken yet
  std::string name_;
};

}  // namespace tessera
