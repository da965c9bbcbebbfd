#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/io/mapped_file.h"

namespace tessera {

/// A 128-bit number, as its upper and lower half.
using SampleId = std::array<std::uint64_t, 2>;

/// Parses 32 hexadecimal digits; returns nullopt for any other text.
std::optional<SampleId> parse_sample_id(std::string_view text);

/// A list of ids in the format of DataComp's published subsets: a .npy file with pairs of little-endian uint64, upper half first (numpy's
/// dtype "u8,u8", or two columns of uint64). The file stays mapped into memory. If it is not sorted, a sorted copy is made.
class IdList {
 public:
  /// Throws UserError if the file does not contain ids; the message names the file and what it contains.
  explicit IdList(const std::string& path);

  bool contains(const SampleId& id) const;
  std::int64_t size() const { return size_; }

 private:
  SampleId at(std::int64_t index) const;

  const io::MappedFile file_;
  const char* ids_ = nullptr;
  std::int64_t size_ = 0;
  std::vector<SampleId> sorted_;  // sorted copy, if the file is not sorted
};

}  // namespace tessera
