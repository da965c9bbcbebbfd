#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <unistd.h>

#include "src/base/printable.h"
#include "src/io/mapped_file.h"
#include "src/io/stand_in.h"
#include "src/io/tar.h"
#include <tessera/base/error.h>

namespace tessera::io {

RandomAccessFile::RandomAccessFile(const std::string& path) : path_(path), descriptor_(open_regular_file(path, size_)) {}

RandomAccessFile::~RandomAccessFile() {
  ::close(descriptor_);
}

std::string RandomAccessFile::read(std::uint64_t offset, std::uint64_t size) const {
  if (offset >= size_) return {};
  std::string out(std::min(size, size_ - offset), '\0');
  out.resize(read_up_to(offset, out.data(), out.size()));
  return out;
}

void RandomAccessFile::read(std::uint64_t offset, void* out, std::uint64_t size) const {
  if (read_up_to(offset, static_cast<char*>(out), size) < size) user_error(path_, ": the file became shorter while it was read");
}

std::uint64_t RandomAccessFile::read_up_to(std::uint64_t offset, char* out, std::uint64_t size) const {
  std::uint64_t done = 0;
  while (done < size) {
    const ssize_t count = ::pread(descriptor_, out + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) user_error(path_, ": cannot be read at byte ", offset + done, ": ", std::strerror(errno));
    if (count == 0) break;
    done += static_cast<std::uint64_t>(count);
  }
  return done;
}

namespace {

std::string_view text_field(std::string_view header, std::size_t at, std::size_t length) {
  const std::string_view field = header.substr(at, length);
  return field.substr(0, field.find('\0'));
}

// Parses octal text, or GNU's base 256 if the top bit of the first byte is set.
std::optional<std::uint64_t> number_field(std::string_view header, std::size_t at, std::size_t length) {
  const std::string_view field = header.substr(at, length);
  std::uint64_t value = 0;
  if (static_cast<std::uint8_t>(field[0]) & 0x80) {
    if (static_cast<std::uint8_t>(field[0]) != 0x80) return std::nullopt;  // negative, or beyond 64 bits
    for (char c : field.substr(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<std::uint8_t>(c);
    }
    return value;
  }
  std::size_t i = 0;
  while (i < length && field[i] == ' ') ++i;
  for (; i < length && field[i] >= '0' && field[i] <= '7'; ++i)
    value = value << 3 | static_cast<std::uint64_t>(field[i] - '0');
  if (i < length && field[i] != ' ' && field[i] != '\0') return std::nullopt;
  return value;
}

// The checksum is the sum of the header's bytes, with its own field read as spaces. A sum of signed bytes, which some
// old programs wrote, is accepted as well.
bool checksum_agrees(std::string_view header) {
  std::int64_t plain = 0;
  std::int64_t with_sign = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const char c = i >= 148 && i < 156 ? ' ' : header[i];
    plain += static_cast<std::uint8_t>(c);
    with_sign += static_cast<signed char>(c);
  }
  const auto stored = number_field(header, 148, 8);
  return stored && (static_cast<std::int64_t>(*stored) == plain || static_cast<std::int64_t>(*stored) == with_sign);
}

std::string name_of(std::string_view header) {
  std::string name(text_field(header, 0, 100));
  const bool ustar =
      header.substr(257, 6) == std::string_view("ustar\0", 6);  // GNU's "ustar " uses the prefix field differently
  const std::string_view prefix = ustar ? text_field(header, 345, 155) : std::string_view();
  return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

// Links, devices and folders have no data. If their size field is not 0, it is ignored, as in Python's tarfile.
bool has_no_data(char type) {
  return type >= '1' && type <= '6';
}

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

bool is_zero_block(std::string_view block) {
  return std::all_of(block.begin(), block.end(), [](char c) { return c == 0; });
}

const char* compression_of(std::string_view start) {
  using namespace std::string_view_literals;
  if (start.starts_with("\x1F\x8B"sv)) return "gzip";
  if (start.starts_with("\x28\xB5\x2F\xFD"sv)) return "zstd";
  return start.starts_with("BZh"sv) ? "bzip2" : nullptr;
}

// Parses PAX records: "LENGTH KEY=VALUE\n", where LENGTH includes its own digits. Returns false if they are malformed.
bool TarHeaderReader::parse_pax(std::string_view records) {
  while (!records.empty() && records[0] != '\0') {
    std::size_t length = 0;
    std::size_t i = 0;
    for (; i < records.size() && i < 10 && records[i] >= '0' && records[i] <= '9'; ++i)
      length = length * 10 + static_cast<std::size_t>(records[i] - '0');
    if (i == 0 || i >= records.size() || records[i] != ' ' || length <= i + 1 || length > records.size()) return false;
    const std::string_view record = records.substr(i + 1, length - i - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos || records[length - 1] != '\n') return false;
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    if (key == "path") next_.name = std::string(value);
    if (key.starts_with("GNU.sparse")) next_.sparse = true;
    if (key == "size") {
      std::uint64_t size = 0;
      for (char c : value) {
        if (c < '0' || c > '9' || size > UINT64_MAX / 16) return false;
        size = size * 10 + static_cast<std::uint64_t>(c - '0');
      }
      next_.size = size;
    }
    records.remove_prefix(length);
  }
  return true;
}

std::string TarHeaderReader::read(std::string_view block, TarHeader& out) {
  out = {};
  if (!checksum_agrees(block)) return "a member's header is damaged";
  type_ = block[156];
  const auto stored_size = number_field(block, 124, 12);
  if (!stored_size) return "a member's size is not a number";
  out.extended = type_ == 'x' || type_ == 'g' || type_ == 'L' || type_ == 'K';
  if (out.extended) {
    out.size = *stored_size;
    return {};
  }
  out.name = next_.name.value_or(name_of(block));
  out.size = has_no_data(type_) ? 0 : next_.size.value_or(*stored_size);
  out.regular = (type_ == '0' || type_ == '\0' || type_ == '7') && !next_.sparse && !out.name.ends_with('/');
  out.continued = type_ == 'S' && block[482] != 0;
  next_ = {};
  return {};
}

std::string TarHeaderReader::extend(std::string_view content) {
  if (type_ == 'x' && !parse_pax(content)) return "an extended header is damaged";
  if (type_ == 'L') next_.name = std::string(content.substr(0, content.find('\0')));
  return {};
}

bool TarHeaderReader::continues(std::string_view block) {
  return block[504] != 0;
}

std::string not_a_tar(std::string_view block) {
  const std::string text = block.find('\0') == std::string_view::npos ? describe_text(block) : "";
  if (!text.empty()) return "is not a tar archive: " + text;
  return block.size() < kBlock ? "" : "is not a tar archive (its first header's checksum is wrong)";
}

namespace {

// Returns the offset of the first block from `at` on that is not zero, or the file's size.
std::uint64_t after_zeros(const RandomAccessFile& file, std::uint64_t at) {
  constexpr std::uint64_t kPiece = 1 << 16;
  for (; at < file.size(); at += kPiece) {
    const std::string piece = file.read(at, kPiece);
    const std::size_t found = piece.find_first_not_of('\0');
    if (found != std::string::npos) return at + found / kBlock * kBlock;
  }
  return file.size();
}

}  // namespace

TarIndex index_tar(const std::string& path) {
  const RandomAccessFile file(path);
  TarIndex index;
  TarHeaderReader reader;
  TarHeader header;
  std::uint64_t at = 0;
  bool ended = false;  // whether an archive has just ended
  const auto stop = [&](std::string problem) {
    index.problem = std::move(problem);
    index.problem_offset = at;
    return index;
  };
  while (at < file.size()) {
    const std::string block = file.read(at, kBlock);
    const char* compression = at == 0 ? compression_of(block) : nullptr;
    if (compression != nullptr)
      user_error(path, ": is compressed with ", compression, "; expected an uncompressed tar: decompress it first");
    if (is_zero_block(block)) {
      at = after_zeros(file, at);
      ended = true;
      continue;
    }
    std::string problem = block.size() < kBlock ? "the archive ends in the middle of a header" : reader.read(block, header);
    if (!problem.empty() && ended) {
      index.ignored = file.size() - at;
      break;
    }
    if (!problem.empty() && at == 0)
      if (const std::string other = not_a_tar(block); !other.empty()) user_error(path, ": ", other);
    if (!problem.empty()) return stop(std::move(problem));
    index.joined = index.joined || ended;
    ended = false;
    std::uint64_t data = at + kBlock;
    for (bool more = header.continued; more; data += kBlock) {
      const std::string next = file.read(data, kBlock);
      if (next.size() < kBlock) return stop("the archive ends in the middle of a header");
      more = TarHeaderReader::continues(next);
    }
    if (header.size > file.size() - data) {
      index.cut_member = header.name;
      return stop("the archive ends in the middle of " + (header.extended ? "a header" : printable(header.name)));
    }
    if (header.extended) {
      if (header.size > kLongestExtension) return stop("an extended header is too long");
      if (std::string damage = reader.extend(file.read(data, header.size)); !damage.empty())
        return stop(std::move(damage));
    } else if (header.regular) {
      index.members.push_back({header.name, data, header.size});
    }
    const std::uint64_t end = data + (header.size + kBlock - 1) / kBlock * kBlock;
    at = std::min<std::uint64_t>(end, file.size());
    if (end > file.size()) return stop("the archive ends in the middle of a block");
  }
  return index;
}

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
