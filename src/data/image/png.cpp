#include <array>
#include <csetjmp>
#include <cstring>
#include <png.h>
#include <string>

#include "src/base/printable.h"
#include "src/data/image/raster_files.h"

namespace tessera {
namespace {

constexpr int kNever = PNG_HANDLE_CHUNK_NEVER;

// libpng reports errors by longjmp. Therefore start() and read() have no local objects with destructors, as in JpegDecoder (jpeg.cpp).
class PngReader {
 public:
  explicit PngReader(std::string_view file)
      : rest_(file),
        png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning)),
        info_(png_create_info_struct(png_)) {}
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  /// Reads the header. Only the chunks that pixels need are read, so a damaged color profile or text does no harm; transparency is not
  /// used.
  bool start() {
    if (setjmp(jump_) != 0) return false;
    png_set_read_fn(png_, this, on_read);
    png_set_crc_action(png_, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);  // wrong checksums are accepted, as in Pillow
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_keep_unknown_chunks(png_, kNever, nullptr, -1);
    png_set_keep_unknown_chunks(png_, kNever, reinterpret_cast<png_const_bytep>("tRNS"), 1);
    png_read_info(png_, info_);
    png_get_IHDR(png_, info_, &width_, &height_, &bits_, &color_, nullptr, nullptr, nullptr);
    return true;
  }

  /// Requests RGB, or gray levels if there are 16 bits of them without alpha.
  bool convert() {
    if (setjmp(jump_) != 0) return false;
    if (deep_gray()) return true;
    if (color_ == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (color_ == PNG_COLOR_TYPE_GRAY && bits_ < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (bits_ == 16) png_set_strip_16(png_);
    if ((color_ & PNG_COLOR_MASK_ALPHA) != 0) png_set_strip_alpha(png_);
    if ((color_ & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png_);
    return true;
  }

  /// Computes the number of bytes of a row.
  bool prepare() {
    if (setjmp(jump_) != 0) return false;
    png_set_packing(png_);
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    row_ = png_get_rowbytes(png_, info_);
    return true;
  }

  /// Reads the rows. What comes after the last row may be missing.
  bool read(std::uint8_t* rows) {
    if (setjmp(jump_) != 0) return false;
    for (int pass = 0; pass < passes_; ++pass)
      for (png_uint_32 y = 0; y < height_; ++y) png_read_row(png_, rows + y * row_, nullptr);
    return true;
  }

  config::Size size() const { return {height_, width_}; }
  bool deep_gray() const { return color_ == PNG_COLOR_TYPE_GRAY && bits_ == 16; }
  bool palette() const { return color_ == PNG_COLOR_TYPE_PALETTE; }
  int bits() const { return bits_; }
  int channels() const { return png_get_channels(png_, info_); }
  std::size_t row_bytes() const { return row_; }
  std::string error() const { return error_.data(); }

 private:
  static PngReader& reader_of(png_structp png) { return *static_cast<PngReader*>(png_get_error_ptr(png)); }
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    PngReader& reader = reader_of(png);
    std::strncpy(reader.error_.data(), text, reader.error_.size() - 1);
    std::longjmp(reader.jump_, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep out, std::size_t count) {
    std::string_view& rest = reader_of(png).rest_;
    if (rest.size() < count && (png_get_io_state(png) & PNG_IO_CHUNK_CRC) != 0) {  // checksums are not used
      std::memset(out, 0, count);
      rest = {};
      return;
    }
    if (rest.size() < count) png_error(png, "it ends in the middle of the image");
    std::memcpy(out, rest.data(), count);
    rest.remove_prefix(count);
  }

  std::string_view rest_;
  std::jmp_buf jump_{};
  std::array<char, 100> error_{};
  png_structp png_;
  png_infop info_;
  png_uint_32 height_ = 0, width_ = 0;
  int bits_ = 0, color_ = 0, passes_ = 0;
  std::size_t row_ = 0;
};

std::vector<std::uint8_t> read_png(PngReader& reader, const config::Size& size, bool convert) {
  const auto check = [&](bool good) {
    if (!good) bad_image("the PNG file cannot be decoded: " + printable(reader.error()));
  };
  check(reader.start());
  if (reader.size() != size) bad_image("a PNG file with a size other than its header's");
  check(!convert || reader.convert());
  check(reader.prepare());
  std::vector<std::uint8_t> out(reader.row_bytes() * static_cast<std::size_t>(size.height));
  check(reader.read(out.data()));
  return out;
}

}  // namespace

std::vector<std::uint8_t> decode_png(std::string_view file, const config::Size& size, GrayLevels& gray) {
  PngReader reader(file);
  std::vector<std::uint8_t> values = read_png(reader, size, /*convert=*/true);
  if (!reader.deep_gray()) return values;
  std::vector<std::uint8_t> out;
  out.reserve(values.size() / 2 * 3);
  for (std::size_t i = 0; i < values.size(); i += 2)
    out.insert(out.end(), 3, gray.of(values[i] * 256U + values[i + 1]));
  return out;
}

PngValues read_png_values(std::string_view file, const config::Size& size) {
  PngReader reader(file);
  std::vector<std::uint8_t> values = read_png(reader, size, /*convert=*/false);
  return {reader.bits(), reader.channels(), reader.palette(), std::move(values)};
}

}  // namespace tessera
