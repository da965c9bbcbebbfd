#include "tests/fuzz/mutation.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::fuzz {
namespace {

std::size_t place_in(std::size_t count, Random& random) {
  return static_cast<std::size_t>(random.below(static_cast<std::int64_t>(std::max<std::size_t>(count, 1))));
}

std::string random_bytes(Random& random) {
  std::string out(1 + place_in(8, random), '\0');
  for (char& byte : out) byte = static_cast<char>(random.next() >> 24);
  return out;
}

std::string piece_of(const std::string& bytes, Random& random) {
  const std::size_t at = place_in(bytes.size(), random);
  const std::size_t longest = random.chance(0.5) ? 16 : 1024;
  return bytes.substr(at, 1 + place_in(longest, random));
}

}  // namespace

Mutator::Mutator(std::vector<std::string> inputs, std::vector<std::string> words, std::size_t longest)
    : inputs_(std::move(inputs)), words_(std::move(words)), longest_(longest) {
  if (inputs_.empty()) inputs_.emplace_back();
}

std::string Mutator::input(std::uint64_t seed, std::uint64_t index) const {
  Random random(seed, Purpose::step, {index});
  std::string bytes = random.pick(inputs_);
  const std::int64_t changes = 1 + random.below(random.chance(0.5) ? 3 : 12);
  for (std::int64_t i = 0; i < changes; ++i) change(bytes, random);
  bytes.resize(std::min(bytes.size(), longest_));
  return bytes;
}

void Mutator::change(std::string& bytes, Random& random) const {
  const std::size_t at = place_in(bytes.size(), random);
  switch (random.below(8)) {
    case 0:
      if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << random.below(8));
      break;
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<char>(random.next() >> 24);
      break;
    case 2:
      overwrite_number(bytes, random);
      break;
    case 3:
      bytes.erase(at, 1 + place_in(random.chance(0.8) ? 16 : bytes.size(), random));
      break;
    case 4:
      insert(bytes, random_bytes(random), random);
      break;
    case 5:
      if (!words_.empty()) insert(bytes, random.pick(words_), random);
      break;
    case 6:
      insert(bytes, piece_of(random.pick(inputs_), random), random);
      break;
    default:
      move_piece(bytes, random);
      break;
  }
}

// Overwrites bytes with a number near the limits of an integer type, in little- or big-endian order.
void Mutator::overwrite_number(std::string& bytes, Random& random) const {
  constexpr std::array<std::uint64_t, 12> edges = {0,      1,          0x7F,       0x80,       0xFF,      0x7FFF,
                                                   0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, INT64_MAX, UINT64_MAX};
  const std::size_t width = std::size_t{1} << random.below(4);
  if (bytes.size() < width) return;
  const std::uint64_t number = edges[place_in(edges.size(), random)] + static_cast<std::uint64_t>(random.below(3)) - 1;
  const std::size_t at = place_in(bytes.size() - width + 1, random);
  const bool big = random.chance(0.5);
  for (std::size_t i = 0; i < width; ++i) bytes[at + (big ? width - 1 - i : i)] = static_cast<char>(number >> (8 * i));
}

void Mutator::move_piece(std::string& bytes, Random& random) const {
  const std::string piece = piece_of(bytes, random);
  const int times = random.chance(0.1) ? 64 : 1;
  std::string many;
  for (int i = 0; i < times; ++i) many += piece;
  insert(bytes, many, random);
}

void Mutator::insert(std::string& bytes, const std::string& piece, Random& random) const {
  if (bytes.size() + piece.size() > 2 * longest_) return;
  const std::size_t at = place_in(bytes.size() + 1, random);
  if (random.chance(0.5))
    bytes.insert(at, piece);
  else
    bytes.replace(at, piece.size(), piece);
}

std::vector<std::string> read_dictionary(const std::string& path) {
  std::vector<std::string> words;
  for (const std::string& line : split(io::read_file(path), '\n')) {
    const std::size_t first = line.find('"'), last = line.rfind('"');
    if (line.starts_with('#') || first == std::string::npos || last == first) continue;
    std::string word;
    for (std::size_t i = first + 1; i < last; ++i) {
      if (line[i] != '\\' || i + 1 >= last) {
        word += line[i];
      } else if (line[i + 1] == 'x' && i + 3 < last) {
        word += static_cast<char>(std::stoi(line.substr(i + 2, 2), nullptr, 16));
        i += 3;
      } else {
        word += line[++i];
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace tessera::fuzz
