// Decodes the first image of a GIF file (GIF89a, CompuServe 1990). giflib refuses files with codes of more than nine bits at the start,
// which Pillow reads.
#include <algorithm>
#include <array>

#include "src/data/image/raster_files.h"

namespace tessera {
namespace {

constexpr std::size_t kMostCodes = 4096;

[[noreturn]] void bad_gif() {
  bad_image("a GIF file that is corrupt or cut off");
}

/// A palette's offset in the file and its number of colors. If a file has no palette, `colors` is 0, and indices are gray levels.
struct Palette {
  std::size_t place = 0, colors = 0;
};

struct FirstImage {
  config::Size screen;
  std::int64_t top = 0, left = 0, height = 0, width = 0;
  bool interlaced = false;
  Palette palette;
  std::uint8_t background = 0;  // palette index of the color around the image
  std::size_t data = 0;         // offset of the code size; the codes come after it
};

// Returns the offset after a sequence of blocks that starts at `at`. Each block is preceded by its length; length 0 ends the
// sequence.
std::size_t behind_blocks(const ByteReader& in, std::size_t at) {
  while (at < in.size() && in.byte(at) > 0) at += 1 + in.byte(at);
  return at + 1;
}

std::optional<FirstImage> find_first_image(std::string_view file) {
  const ByteReader in(file);
  FirstImage out;
  const auto palette_at = [&](std::uint8_t flags, std::size_t place) {
    return (flags & 0x80) != 0 ? Palette{place, std::size_t{2} << (flags & 7)} : Palette{};
  };
  out.screen = {in.u16(8), in.u16(6)};
  out.palette = palette_at(in.byte(10), 13);
  for (std::size_t at = 13 + 3 * out.palette.colors; at < file.size();) {
    const std::uint8_t kind = in.byte(at++);
    if (kind == ';') return std::nullopt;
    if (kind == '!') {
      const bool control = in.byte(at) == 0xF9 && in.byte(at + 1) >= 4;
      if (control && (in.byte(at + 2) & 1) != 0) out.background = in.byte(at + 5);  // the transparent color fills the area around the image
      at = behind_blocks(in, at + 1);
    } else if (kind == ',') {
      if (at + 9 >= file.size()) return std::nullopt;
      out.left = in.u16(at);
      out.top = in.u16(at + 2);
      out.width = in.u16(at + 4);
      out.height = in.u16(at + 6);
      const std::uint8_t flags = in.byte(at + 8);
      out.interlaced = (flags & 0x40) != 0;
      const Palette own = palette_at(flags, at + 9);
      if (own.colors > 0) out.palette = own;
      out.data = at + 9 + 3 * own.colors;
      out.screen.height = std::max(out.screen.height, out.top + out.height);
      out.screen.width = std::max(out.screen.width, out.left + out.width);
      return out;
    }
  }
  return std::nullopt;
}

/// Reads codes of growing width from a sequence of blocks.
class CodeReader {
 public:
  CodeReader(const ByteReader& in, std::size_t at) : in_(in), at_(at) {}

  std::uint32_t next(std::uint32_t width) {
    while (count_ < width) {
      if (left_ == 0) {
        left_ = in_.byte(at_++);
        if (left_ == 0) bad_gif();
      }
      if (at_ >= in_.size()) bad_gif();
      bits_ |= static_cast<std::uint32_t>(in_.byte(at_++)) << count_;
      --left_;
      count_ += 8;
    }
    const std::uint32_t code = bits_ & ((1U << width) - 1);
    bits_ >>= width;
    count_ -= width;
    return code;
  }

 private:
  const ByteReader& in_;
  std::size_t at_;
  std::size_t left_ = 0;  // bytes left in the block
  std::uint32_t bits_ = 0, count_ = 0;
};

// Decodes LZW: each new code stands for the index sequence of the previous code plus one more index.
std::vector<std::uint8_t> decode_indices(const ByteReader& in, std::size_t at, std::size_t count) {
  const std::uint32_t bits = in.byte(at);
  if (bits < 1 || bits > 11) bad_gif();  // 12 bits is the longest code, which is one bit longer than these
  const std::uint32_t clear = 1U << bits, end = clear + 1;
  constexpr std::uint32_t none = kMostCodes;
  std::array<std::uint16_t, kMostCodes> before{};
  std::array<std::uint8_t, kMostCodes> last{}, first{};
  for (std::uint32_t i = 0; i < clear; ++i) last[i] = first[i] = static_cast<std::uint8_t>(i);
  std::vector<std::uint8_t> out, row;
  out.reserve(count);
  CodeReader codes(in, at + 1);
  std::uint32_t width = bits + 1, next = clear + 2, previous = none;
  while (out.size() < count) {
    const std::uint32_t code = codes.next(width);
    if (code == clear) {
      width = bits + 1;
      next = clear + 2;
      previous = none;
      continue;
    }
    if (code == end || code > next || (previous == none && code >= clear) || (code == next && previous == none))
      bad_gif();
    if (previous != none && next < kMostCodes) {
      before[next] = static_cast<std::uint16_t>(previous);
      first[next] = first[previous];
      last[next] = code == next ? first[previous] : first[code];
      ++next;
      if (next == 1U << width && width < 12) ++width;
    } else if (code >= next) {
      bad_gif();
    }
    row.clear();
    for (std::uint32_t each = code;; each = before[each]) {
      row.push_back(last[each]);
      if (each < clear) break;
    }
    const std::size_t wanted = std::min(row.size(), count - out.size());
    out.insert(out.end(), row.rbegin(), row.rbegin() + static_cast<std::ptrdiff_t>(wanted));
    previous = code;
  }
  return out;
}

// Returns the row numbers of the image in the order in which the file stores the rows.
std::vector<std::int64_t> row_order(std::int64_t height, bool interlaced) {
  std::vector<std::int64_t> out;
  const std::array<std::array<std::int64_t, 2>, 4> passes = {{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};
  if (!interlaced)
    for (std::int64_t y = 0; y < height; ++y) out.push_back(y);
  else
    for (const auto& [begin, step] : passes)
      for (std::int64_t y = begin; y < height; y += step) out.push_back(y);
  return out;
}

}  // namespace

std::optional<config::Size> gif_size(std::string_view file) {
  const auto image = find_first_image(file);
  if (!image) return std::nullopt;
  return image->screen;
}

std::vector<std::uint8_t> decode_gif(std::string_view file, const config::Size& size) {
  const FirstImage image = *find_first_image(file);
  const ByteReader in(file);
  const auto color = [&](std::uint8_t index, std::uint8_t* pixel) {
    const Palette& palette = image.palette;
    if (palette.colors > 0 && index >= palette.colors) return;  // a pixel with an index beyond the palette stays black, as in Pillow
    for (std::size_t c = 0; c < 3; ++c) pixel[c] = palette.colors > 0 ? in.byte(palette.place + 3 * index + c) : index;
  };
  std::vector<std::uint8_t> out(static_cast<std::size_t>(size.height * size.width * 3));
  for (std::size_t i = 0; i < out.size(); i += 3) color(image.background, out.data() + i);
  if (image.height == 0 || image.width == 0) bad_gif();
  const std::vector<std::uint8_t> indices =
      decode_indices(in, image.data, static_cast<std::size_t>(image.height * image.width));
  const std::uint8_t* index = indices.data();
  for (const std::int64_t y : row_order(image.height, image.interlaced)) {
    std::uint8_t* pixel = out.data() + ((image.top + y) * size.width + image.left) * 3;
    for (std::int64_t x = 0; x < image.width; ++x, pixel += 3) {
      std::fill(pixel, pixel + 3, std::uint8_t{0});
      color(*index++, pixel);
    }
  }
  return out;
}

}  // namespace tessera
