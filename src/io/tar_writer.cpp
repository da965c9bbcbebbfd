#include <algorithm>
#include <array>
#include <numeric>

#include "src/io/tar_header.h"
#include "src/io/tar_writer.h"
#include <tessera/base/error.h>

namespace tessera::io {
namespace {

constexpr std::uint64_t kLargest = 077777777777;  // eleven octal digits

using Header = std::array<char, kBlock>;

// Writes a field of the ustar header (POSIX.1-1988).
void put(Header& header, std::size_t offset, std::string_view text) {
  std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(offset));
}

void put_octal(Header& header, std::size_t offset, int digits, unsigned long long value) {
  header[offset + static_cast<std::size_t>(digits)] = '\0';
  for (auto at = offset + static_cast<std::size_t>(digits); at-- > offset; value >>= 3)
    header[at] = static_cast<char>('0' + (value & 7));
}

}  // namespace

TarWriter::TarWriter(const std::string& path) : path_(path), file_(path) {}

void TarWriter::add(const std::string& name, std::string_view content) {
  std::string_view prefix;
  std::string_view rest = name;
  if (name.size() > 100) {
    const std::size_t slash = name.find('/', name.size() - 101);
    if (slash == std::string::npos || slash > 155)
      user_error(path_, ": the name ", name, " is too long for a tar: at most 100 bytes, or 155 + 100 split at a /");
    prefix = std::string_view(name).substr(0, slash);
    rest = std::string_view(name).substr(slash + 1);
  }
  if (rest.empty()) user_error(path_, ": a member needs a name");
  if (content.size() > kLargest) user_error(path_, ": ", name, " is larger than 8 GiB, the most that a tar holds");

  Header header{};
  put(header, 0, rest);
  put_octal(header, 100, 7, 0644);
  put_octal(header, 108, 7, 0);
  put_octal(header, 116, 7, 0);
  put_octal(header, 124, 11, content.size());
  put_octal(header, 136, 11, 0);
  put(header, 148, "        ");
  put(header, 156, "0");
  put(header, 257, std::string_view("ustar\00000", 8));
  put(header, 345, prefix);
  const unsigned sum = std::accumulate(header.begin(), header.end(), 0U,
                                       [](unsigned total, char c) { return total + static_cast<unsigned char>(c); });
  put_octal(header, 148, 6, sum);

  file_.write(header.data(), header.size());
  file_.write(content);
  static constexpr Header kZeros{};
  file_.write(kZeros.data(), (kBlock - content.size() % kBlock) % kBlock);
}

void TarWriter::finish() {
  static constexpr std::array<char, 2 * kBlock> kEnd{};
  file_.write(kEnd.data(), kEnd.size());
  file_.commit();
}

}  // namespace tessera::io
