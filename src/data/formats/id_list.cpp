#include "src/data/formats/id_list.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "src/base/printable.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::size_t kIdBytes = 2 * sizeof(std::uint64_t);
constexpr std::size_t kNpyPrefix = 10;  // magic, version and the header's length

/// Returns a .npy file's header: "{'descr': '<u8', 'fortran_order': False, 'shape': (3, 2), }". The data follow it.
std::string_view read_npy_header(std::string_view file, const std::string& path) {
  using namespace std::string_view_literals;
  if (file.size() < kNpyPrefix + 2 || !file.starts_with("\x93NUMPY"sv))
    user_error(path, ": is not a .npy file; expected ids as numpy saves them");
  const std::size_t width = file[6] >= 2 ? 4 : 2;
  std::size_t length = 0;
  for (std::size_t i = width; i > 0; --i) length = length << 8 | static_cast<std::uint8_t>(file[8 + i - 1]);
  if (length > file.size() - 8 - width) user_error(path, ": is cut off in its header");
  return file.substr(8 + width, length);
}

}  // namespace

std::optional<SampleId> parse_sample_id(std::string_view text) {
  SampleId out{};
  if (text.size() != 32) return std::nullopt;
  for (std::size_t half = 0; half < 2; ++half) {
    const char *begin = text.data() + 16 * half, *end = begin + 16;
    const auto result = std::from_chars(begin, end, out[half], 16);
    if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  }
  return out;
}

IdList::IdList(const std::string& path) : file_(path) {
  const std::string_view bytes = file_.bytes();
  const std::string_view written = read_npy_header(bytes, path);
  std::string header(written);
  std::erase_if(header, [](char c) { return c == ' ' || c == '\n'; });
  const bool pairs = header.find("'descr':[('f0','<u8'),('f1','<u8')]") != std::string::npos;
  const std::size_t shape = header.find("'shape':(");
  std::int64_t columns = 0;
  const char* end = header.data() + header.size();
  if (shape != std::string::npos) {
    const auto rows = std::from_chars(header.data() + shape + 9, end, size_);
    if (rows.ec == std::errc() && rows.ptr < end && *rows.ptr == ',') std::from_chars(rows.ptr + 1, end, columns);
  }
  const bool table = header.find("'descr':'<u8'") != std::string::npos && columns == 2;
  if ((!pairs && !table) || (pairs && columns != 0) || size_ < 0 ||
      header.find("'fortran_order':False") == std::string::npos)
    user_error(path, ": expected ids as pairs of uint64 (numpy's dtype \"u8,u8\", as DataComp publishes them), got ",
               printable(header, 100));
  ids_ = written.data() + written.size();
  if (static_cast<std::size_t>(bytes.data() + bytes.size() - ids_) / kIdBytes < static_cast<std::size_t>(size_))
    user_error(path, ": is cut off: fewer than ", size_, " ids");
  for (std::int64_t i = 1; i < size_; ++i) {
    if (at(i - 1) <= at(i)) continue;
    for (std::int64_t each = 0; each < size_; ++each) sorted_.push_back(at(each));
    std::ranges::sort(sorted_);
    break;
  }
}

SampleId IdList::at(std::int64_t index) const {
  SampleId out;
  std::memcpy(out.data(), ids_ + static_cast<std::size_t>(index) * kIdBytes, kIdBytes);
  return out;
}

bool IdList::contains(const SampleId& id) const {
  if (!sorted_.empty()) return std::ranges::binary_search(sorted_, id);
  std::int64_t begin = 0, end = size_;
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin) / 2;
    const SampleId there = at(middle);
    if (there == id) return true;
    (there < id ? begin : end) = there < id ? middle + 1 : middle;
  }
  return false;
}

}  // namespace tessera
