#pragma once

#include <memory>
#include <string>

#include "src/data/formats/byte_stream.h"
#include "src/io/tar.h"

namespace tessera {

/// Reads the members of a tar in order, from a stream.
class TarStream {
 public:
  explicit TarStream(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {}

  /// Advances to the next plain file and writes its name, offset and size to `member`. Skips the unread rest of the previous file. At the
  /// end of the stream, returns false; another archive may follow the end of an archive (cat a.tar b.tar). Throws StreamError if the stream
  /// is not a tar, is truncated or is damaged.
  bool next(io::TarMember& member);

  /// Returns the bytes of the current file.
  std::string content();

  /// As in io::TarIndex, for the stream so far.
  bool joined() const { return joined_; }
  std::uint64_t ignored() const { return ignored_; }
  /// Returns the name of the first plain file; empty before it.
  const std::string& first_member() const { return first_; }

 private:
  std::string take(std::uint64_t size);
  void pass_over(std::uint64_t size);
  std::uint64_t drain();

  std::unique_ptr<ByteStream> bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t content_ = 0, filling_ = 0;  // unread bytes of the current member, and of the padding after it
  std::string name_, first_;
  bool ended_ = false;  // whether an archive has just ended
  bool joined_ = false;
  std::uint64_t ignored_ = 0;
};

}  // namespace tessera
