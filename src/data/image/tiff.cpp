// Reads TIFF files with libtiff. Format: https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf
#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <tiffio.h>

#include "src/base/printable.h"
#include "src/data/image/orientation.h"
#include "src/data/image/raster_files.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::size_t kMostSamples = 6;  // largest number of values per pixel, which TIFF calls samples
constexpr std::uint64_t kMostTileBytes = std::uint64_t{1} << 28;

// The first error that libtiff reported for the file that this thread reads.
thread_local std::string libtiff_error;

void keep_error(const char*, const char* format, va_list values) {
  std::array<char, 200> text{};
  if (std::vsnprintf(text.data(), text.size(), format, values) > 0 && libtiff_error.empty())
    libtiff_error = text.data();
}

[[noreturn]] void damaged_tiff() {
  bad_image("a TIFF file that is corrupt or cut off" + (libtiff_error.empty() ? "" : ": " + printable(libtiff_error)));
}

/// Lets libtiff read a file in memory.
struct TiffBytes {
  std::string_view bytes;
  std::uint64_t place = 0;

  static tmsize_t read(thandle_t handle, void* out, tmsize_t size) {
    auto& in = *static_cast<TiffBytes*>(handle);
    if (in.place >= in.bytes.size()) return 0;
    const std::size_t count = in.bytes.copy(static_cast<char*>(out), static_cast<std::size_t>(size), in.place);
    in.place += count;
    return static_cast<tmsize_t>(count);
  }
  static toff_t seek(thandle_t handle, toff_t offset, int from) {
    auto& in = *static_cast<TiffBytes*>(handle);
    in.place = from == SEEK_SET ? offset : from == SEEK_CUR ? in.place + offset : in.bytes.size() + offset;
    return in.place;
  }
  static toff_t size(thandle_t handle) { return static_cast<TiffBytes*>(handle)->bytes.size(); }
};

using TiffHandle = std::unique_ptr<TIFF, decltype(&TIFFClose)>;

// Mode m disables memory mapping, because the file is already in memory.
TiffHandle open_tiff(TiffBytes& bytes) {
  static std::once_flag once;
  std::call_once(once, [] {
    TIFFSetErrorHandler(keep_error);
    TIFFSetWarningHandler(nullptr);
  });
  libtiff_error.clear();
  const auto no_write = [](thandle_t, void*, tmsize_t) -> tmsize_t { return 0; };
  const auto no_close = [](thandle_t) { return 0; };
  TiffHandle out(TIFFClientOpen("the file", "rm", &bytes, TiffBytes::read, no_write, TiffBytes::seek, no_close,
                                TiffBytes::size, nullptr, nullptr),
                 TIFFClose);
  if (!out) damaged_tiff();
  return out;
}

template <class T>
T field(TIFF* tiff, ttag_t tag, T otherwise) {
  T value{};
  return TIFFGetFieldDefaulted(tiff, tag, &value) != 0 ? value : otherwise;
}

/// The pixel layout of a file.
struct Layout {
  std::size_t height = 0, width = 0;  // before applying the orientation
  std::size_t bits = 0, samples = 0;
  std::uint16_t color = 0, extra = 0;  // PHOTOMETRIC_...; EXTRASAMPLE_... of the first non-color sample
  bool separate = false, is_signed = false;

  bool gray() const { return color == PHOTOMETRIC_MINISWHITE || color == PHOTOMETRIC_MINISBLACK; }
  /// Gray with more than 8 bits, whose values are reduced as those of a 16-bit PNG, however many bits there are.
  bool deep_gray() const { return gray() && samples == 1 && bits > 8; }
};

Layout layout_of(TIFF* tiff) {
  Layout out;
  out.height = field<std::uint32_t>(tiff, TIFFTAG_IMAGELENGTH, 0);
  out.width = field<std::uint32_t>(tiff, TIFFTAG_IMAGEWIDTH, 0);
  out.bits = field<std::uint16_t>(tiff, TIFFTAG_BITSPERSAMPLE, 1);
  out.samples = field<std::uint16_t>(tiff, TIFFTAG_SAMPLESPERPIXEL, 1);
  out.color = field<std::uint16_t>(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISWHITE);
  out.is_signed = field<std::uint16_t>(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT) == SAMPLEFORMAT_INT;
  out.separate = field<std::uint16_t>(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) == PLANARCONFIG_SEPARATE;
  std::uint16_t count = 0;
  std::uint16_t* kinds = nullptr;
  if (TIFFGetFieldDefaulted(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) != 0 && count > 0) out.extra = kinds[0];
  return out;
}

std::size_t colors_of(const Layout& layout) {
  switch (layout.color) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_PALETTE:
      return 1;
    case PHOTOMETRIC_RGB:
    case PHOTOMETRIC_YCBCR:  // libtiff converts it to RGB
      return 3;
    case PHOTOMETRIC_SEPARATED:
      return 4;
    default:
      bad_image(concat("a TIFF file with color space ", layout.color, ", which is not supported"));
  }
}

void check_layout(TIFF* tiff, const Layout& layout) {
  const std::size_t bits = layout.bits, colors = colors_of(layout);
  const bool few_bits = (bits == 1 || bits == 2 || bits == 4) && colors == 1 && layout.samples == 1;
  const bool palette = layout.color == PHOTOMETRIC_PALETTE, deep = layout.deep_gray() && (bits == 12 || bits == 32);
  if (!few_bits && !deep && bits != 8 && (bits != 16 || palette))
    bad_image(concat("a TIFF file with ", bits, " bits for each of ", layout.samples, " values per pixel, which is not supported"));
  // Pillow reads signed gray levels, too, and those of 8 bits as unsigned.
  const bool signed_gray = layout.is_signed && layout.gray() && (bits == 8 || layout.deep_gray());
  if (!signed_gray && field<std::uint16_t>(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT) != SAMPLEFORMAT_UINT)
    bad_image("a TIFF file with values that are not unsigned integers, which is not supported");
  if (layout.samples < colors || layout.samples > kMostSamples)
    bad_image(concat("a TIFF file with ", layout.samples, " values per pixel, which is not supported"));
}

/// Reads the values of all pixels, [height, width, samples], and reduces them to 8 bits. Of separate planes, only the first `used` are
/// read.
class ValueReader {
 public:
  ValueReader(TIFF* tiff, const Layout& layout, GrayLevels& gray)
      : tiff_(tiff), layout_(layout), gray_(gray), out_(layout.height * layout.width * layout.samples) {}

  std::vector<std::uint8_t> read(std::size_t used) {
    const std::size_t planes = layout_.separate ? used : 1;
    for (std::size_t plane = 0; plane < planes; ++plane) read_plane(plane);
    return std::move(out_);
  }

 private:
  // Reads tiles, or strips, which are as wide as the image and may end with it.
  void read_plane(std::size_t plane) {
    const bool tiled = TIFFIsTiled(tiff_) != 0;
    const tmsize_t bytes = tiled ? TIFFTileSize(tiff_) : TIFFStripSize(tiff_);
    if (bytes <= 0 || static_cast<std::uint64_t>(bytes) > kMostTileBytes + 2 * out_.size())
      bad_image("a TIFF file with strips or tiles of an impossible size");
    buffer_.resize(static_cast<std::size_t>(bytes));
    const std::size_t height = tiled ? field<std::uint32_t>(tiff_, TIFFTAG_TILELENGTH, 0)
                                     : std::min<std::size_t>(std::max(field<std::uint32_t>(tiff_, TIFFTAG_ROWSPERSTRIP, 1), 1U), layout_.height);
    const std::size_t width = tiled ? field<std::uint32_t>(tiff_, TIFFTAG_TILEWIDTH, 0) : layout_.width;
    if (tiled && (height == 0 || width == 0 || buffer_.size() / height < row_bytes(width))) damaged_tiff();
    for (std::size_t top = 0; top < layout_.height; top += height)
      for (std::size_t left = 0; left < layout_.width; left += width) {
        const auto x = static_cast<std::uint32_t>(left), y = static_cast<std::uint32_t>(top);
        const auto sample = static_cast<std::uint16_t>(plane);
        const tmsize_t got = tiled ? TIFFReadTile(tiff_, buffer_.data(), x, y, 0, sample)
                                   : TIFFReadEncodedStrip(tiff_, TIFFComputeStrip(tiff_, y, sample), buffer_.data(), bytes);
        const std::size_t rows = std::min(height, layout_.height - top);
        if (got < 0 || static_cast<std::size_t>(got) < (tiled ? height : rows) * row_bytes(width)) damaged_tiff();
        place(plane, top, left, rows, std::min(width, layout_.width - left), width);
      }
  }

  std::size_t samples_here() const { return layout_.separate ? 1 : layout_.samples; }
  std::size_t row_bytes(std::size_t width) const { return (width * samples_here() * layout_.bits + 7) / 8; }

  // Copies the part of the buffer that is inside the image. The buffer's rows are `row_width` pixels wide.
  void place(std::size_t plane, std::size_t top, std::size_t left, std::size_t height, std::size_t width,
             std::size_t row_width) {
    const std::size_t here = samples_here();
    for (std::size_t y = 0; y < height; ++y) {
      const std::uint8_t* row = buffer_.data() + y * row_bytes(row_width);
      std::uint8_t* to = out_.data() + ((top + y) * layout_.width + left) * layout_.samples + plane;
      for (std::size_t x = 0; x < width; ++x)
        for (std::size_t sample = 0; sample < here; ++sample)
          to[x * layout_.samples + sample] = value(row, x * here + sample);
    }
  }

  std::uint8_t value(const std::uint8_t* row, std::size_t number) {
    const std::size_t bits = layout_.bits;
    if (bits == 8) return row[number];
    if (bits < 8)
      return static_cast<std::uint8_t>(row[number * bits / 8] >> (8 - bits - number * bits % 8) & ((1U << bits) - 1));
    const std::int64_t deep = deep_value(row, number);
    if (!layout_.deep_gray()) return static_cast<std::uint8_t>(deep >> 8);
    if (deep < 0 || deep > 65535)
      bad_image(concat("a TIFF file with the gray level ", deep, "; only levels from 0 to 65535 are supported"));
    return gray_.of(static_cast<std::uint32_t>(deep));
  }

  std::int64_t deep_value(const std::uint8_t* row, std::size_t number) const {
    const auto native = [&]<class T>(T value) -> std::int64_t {
      std::memcpy(&value, row + sizeof(value) * number, sizeof(value));
      return value;
    };
    if (layout_.bits == 12) {
      const std::uint8_t* pair = row + number / 2 * 3;  // two values in three bytes
      return number % 2 == 0 ? pair[0] << 4 | pair[1] >> 4 : (pair[1] & 15) << 8 | pair[2];
    }
    if (layout_.bits == 16) return layout_.is_signed ? native(std::int16_t{}) : native(std::uint16_t{});
    return layout_.is_signed ? native(std::int32_t{}) : native(std::uint32_t{});
  }

  TIFF* tiff_;
  const Layout& layout_;
  GrayLevels& gray_;
  std::vector<std::uint8_t> out_, buffer_;
};

/// Converts pixel values to RGB.
class Coloring {
 public:
  Coloring(TIFF* tiff, const Layout& layout)
      : layout_(layout),
        scale_(255U / ((1U << std::min<std::size_t>(layout.bits, 8)) - 1)),
        has_alpha_(layout.extra == EXTRASAMPLE_ASSOCALPHA && layout.samples > 3) {
    if (layout.color == PHOTOMETRIC_PALETTE &&
        TIFFGetField(tiff, TIFFTAG_COLORMAP, &palette_[0], &palette_[1], &palette_[2]) == 0)
      bad_image("a TIFF file without its palette");
  }

  /// Returns the number of samples that color() uses.
  std::size_t samples() const { return has_alpha_ ? 4 : colors_of(layout_); }

  void color(const std::uint8_t* values, std::uint8_t* pixel) const {
    switch (layout_.color) {
      case PHOTOMETRIC_PALETTE:
        for (std::size_t c = 0; c < 3; ++c) pixel[c] = static_cast<std::uint8_t>(palette_[c][values[0]] >> 8);
        break;
      case PHOTOMETRIC_MINISWHITE:
      case PHOTOMETRIC_MINISBLACK: {
        // Pillow opens images of more than 8 bits as if 0 were black in all of them.
        const auto level = static_cast<std::uint8_t>(values[0] * scale_);
        std::fill(pixel, pixel + 3,
                  layout_.color == PHOTOMETRIC_MINISBLACK || layout_.deep_gray()
                      ? level
                      : static_cast<std::uint8_t>(255 - level));
        break;
      }
      case PHOTOMETRIC_SEPARATED:
        ink_to_rgb({values[0], values[1], values[2]}, 255 - values[3], pixel);
        break;
      default:
        for (std::size_t c = 0; c < 3; ++c)
          pixel[c] = has_alpha_ ? without_alpha(values[c], values[3]) : values[c];
    }
  }

 private:
  // Undoes the multiplication of a color by its alpha.
  static std::uint8_t without_alpha(std::uint8_t value, std::uint8_t alpha) {
    return static_cast<std::uint8_t>(alpha == 0 ? 0 : std::min(255, 255 * value / alpha));
  }

  const Layout& layout_;
  const unsigned scale_;
  const bool has_alpha_;  // RGB multiplied by alpha; a file may name an alpha that its pixels lack
  std::uint16_t* palette_[3] = {};  // NOLINT: libtiff's type
};

// Converts luma and color differences to RGB in place. Pillow uses these coefficients, in 64ths, even if the file names others.
void differences_to_rgb(std::vector<std::uint8_t>& values) {
  const auto term = [](int difference, double coefficient) {
    return static_cast<int>((difference - 128) * coefficient * 64 + 0.5);
  };
  const auto level = [](int value) { return static_cast<std::uint8_t>(std::clamp(value, 0, 255)); };
  for (std::size_t i = 0; i + 2 < values.size(); i += 3) {
    const int luma = values[i], blue = values[i + 1], red = values[i + 2];
    values[i] = level(luma + (term(red, 1.402) >> 6));
    values[i + 1] = level(luma + ((term(blue, -0.34414) + term(red, -0.71414)) >> 6));
    values[i + 2] = level(luma + (term(blue, 1.772) >> 6));
  }
}

// Reads YCbCr pixels that are neither JPEG-compressed nor read by Pillow itself; libtiff converts them to RGB.
std::vector<std::uint8_t> read_color_differences(TIFF* tiff, const Layout& layout) {
  std::vector<std::uint32_t> raster(layout.height * layout.width);
  if (TIFFReadRGBAImageOriented(tiff, static_cast<std::uint32_t>(layout.width),
                                static_cast<std::uint32_t>(layout.height), raster.data(),
                                field<std::uint16_t>(tiff, TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT), 1) == 0)
    damaged_tiff();
  std::vector<std::uint8_t> out;
  out.reserve(3 * raster.size());
  for (const std::uint32_t pixel : raster)
    for (const std::uint32_t value : {TIFFGetR(pixel), TIFFGetG(pixel), TIFFGetB(pixel)})
      out.push_back(static_cast<std::uint8_t>(value));
  return out;
}

std::vector<std::uint8_t> read_pixels(TIFF* tiff, const Layout& layout, GrayLevels& gray) {
  const auto compression = field<std::uint16_t>(tiff, TIFFTAG_COMPRESSION, COMPRESSION_NONE);
  if (layout.color == PHOTOMETRIC_YCBCR && (layout.separate || compression != COMPRESSION_JPEG)) {
    std::uint16_t across = 0, down = 0;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_YCBCRSUBSAMPLING, &across, &down);
    const bool plain = compression == COMPRESSION_NONE && !layout.separate && across == 1 && down == 1 &&
                       layout.samples == 3 && layout.bits == 8;
    if (!plain) return read_color_differences(tiff, layout);
    std::vector<std::uint8_t> values = ValueReader(tiff, layout, gray).read(3);
    differences_to_rgb(values);
    return values;
  }
  if (layout.color == PHOTOMETRIC_YCBCR) TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  check_layout(tiff, layout);
  const Coloring coloring(tiff, layout);
  const std::vector<std::uint8_t> values = ValueReader(tiff, layout, gray).read(coloring.samples());
  std::vector<std::uint8_t> out(layout.height * layout.width * 3);
  for (std::size_t i = 0; i < out.size() / 3; ++i)
    coloring.color(values.data() + i * layout.samples, out.data() + 3 * i);
  return out;
}

// Returns 1 for numbers that are no orientation.
int kept_orientation(std::int64_t number) {
  return number >= 1 && number <= 8 ? static_cast<int>(number) : 1;
}

}  // namespace

std::map<std::uint32_t, std::int64_t> tiff_numbers(std::string_view file) {
  const bool big_endian = file.starts_with("MM");
  const ByteReader in(file, big_endian);
  const bool big = in.u16(2) == 43;  // BigTIFF: 64-bit offsets
  const std::uint64_t place = in.number(big ? 8 : 4, big ? 8 : 4);
  std::map<std::uint32_t, std::int64_t> out;
  if (place >= file.size()) return out;
  const auto start = static_cast<std::size_t>(place);
  const std::uint64_t count = std::min<std::uint64_t>(in.number(start, big ? 8 : 2), file.size() / 12);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t entry = start + (big ? 8 + 20 * i : 2 + 12 * i), value = entry + (big ? 12 : 8);
    const std::uint32_t tag = in.u16(entry), type = in.u16(entry + 2);
    const std::size_t bytes = type == 3 || type == 8 ? 2 : type == 4 || type == 9 ? 4 : type == 16 ? 8 : 1;
    out[tag] = static_cast<std::int64_t>(std::min<std::uint64_t>(in.number(value, bytes), 1U << 31));
  }
  return out;
}

std::optional<config::Size> tiff_size(std::string_view file) {
  std::map<std::uint32_t, std::int64_t> numbers = tiff_numbers(file);
  if (numbers.empty()) return std::nullopt;
  const config::Size stored{numbers[TIFFTAG_IMAGELENGTH], numbers[TIFFTAG_IMAGEWIDTH]};
  return turned_size(stored, kept_orientation(numbers[TIFFTAG_ORIENTATION]));
}

std::vector<std::uint8_t> decode_tiff(std::string_view file, const config::Size& size, GrayLevels& gray) {
  TiffBytes bytes{file};
  const TiffHandle tiff = open_tiff(bytes);
  const Layout layout = layout_of(tiff.get());
  const int orientation = kept_orientation(field<std::uint16_t>(tiff.get(), TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT));
  const config::Size stored{static_cast<std::int64_t>(layout.height), static_cast<std::int64_t>(layout.width)};
  if (turned_size(stored, orientation) != size) bad_image("a TIFF file with a size other than its header's");
  return turned(read_pixels(tiff.get(), layout, gray), stored, orientation, 3);
}

}  // namespace tessera
