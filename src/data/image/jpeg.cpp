#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <jerror.h>
#include <jpeglib.h>
#include <string>

#include "src/base/printable.h"
#include "src/data/image/raster_files.h"

namespace tessera {
namespace {

constexpr int kMostScans = 500;  // a progressive file with thousands of scans is an attack

struct JpegErrors {
  jpeg_error_mgr base;  // must be first, because libjpeg passes pointers to it
  std::jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> text;
  bool at_end;           // libjpeg wanted more bytes than the file has
  bool lacks_rows;       // because of that, rows are missing
  int scan, components;  // number of the scan, and of the components in the scans so far
};

JpegErrors& errors_of(j_common_ptr info) {
  return *reinterpret_cast<JpegErrors*>(info->err);
}

[[noreturn]] void on_error(j_common_ptr info) {
  JpegErrors& errors = errors_of(info);
  info->err->format_message(info, errors.text.data());
  std::longjmp(errors.jump, 1);
}

// libjpeg continues after a warning. Like Pillow, we accept all warnings, except that the file ends while pixels are decoded
// (JWRN_HIT_MARKER; the decoder of arithmetic coding does not give this warning). A file that lacks only the marker of its end is accepted.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  const auto* file = reinterpret_cast<j_decompress_ptr>(info);
  JpegErrors& errors = errors_of(info);
  if (info->err->msg_code == JWRN_JPEG_EOF) errors.at_end = true;
  const bool before_last_rows = file->arith_code && file->input_iMCU_row + 1 < file->total_iMCU_rows;
  if (errors.at_end && (info->err->msg_code == JWRN_HIT_MARKER || before_last_rows)) errors.lacks_rows = true;
}

// Returns whether an image that is stored in several scans lacks scans: of components, or of the last bits of coefficients.
bool lacks_scans(j_decompress_ptr info) {
  if (info->coef_bits == nullptr)
    return errors_of(reinterpret_cast<j_common_ptr>(info)).components < info->num_components;
  for (int c = 0; c < info->num_components; ++c)
    for (int k = 0; k < DCTSIZE2; ++k)
      if (info->coef_bits[c][k] != 0) return true;
  return false;
}

void on_progress(j_common_ptr info) {
  const auto* file = reinterpret_cast<j_decompress_ptr>(info);
  JpegErrors& errors = errors_of(info);
  if (file->input_scan_number != errors.scan) errors.components += file->comps_in_scan;
  errors.scan = file->input_scan_number;
  if (file->input_scan_number <= kMostScans) return;
  std::snprintf(errors_of(info).text.data(), JMSG_LENGTH_MAX, "it has more than %d scans", kMostScans);
  std::longjmp(errors_of(info).jump, 1);
}

// libjpeg reports errors by longjmp. Therefore start() and read() have no local objects with destructors: their caller owns the
// memory, and they only return whether they succeeded. Each file needs a new decoder, because a reused decoder keeps the tables
// of the previous file.
class JpegDecoder {
 public:
  JpegDecoder() : info_{}, errors_{}, progress_{} {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = on_error;
    errors_.base.emit_message = on_message;
    progress_.progress_monitor = on_progress;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// Reads the header and chooses the scale and the region to decode.
  bool start(std::string_view padded_file, std::int64_t height, std::int64_t width, const JpegRequest& request,
             JpegPixels& out) {
    if (setjmp(errors_.jump) != 0) return false;
    // Zeros that pad a file must not pass for pixels. One zero is kept, because it may belong to the last pixels.
    const std::string_view file = padded_file.substr(0, padded_file.find_last_not_of('\0') + 2);
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info_, TRUE);
    // libjpeg also finds markers after garbage, so the size that it reads may differ from the one that was checked against the limits.
    if (info_.image_height != height || info_.image_width != width) {
      std::snprintf(errors_.text.data(), errors_.text.size(), "it has two sizes, %d x %d and %u x %u",
                    static_cast<int>(width), static_cast<int>(height), info_.image_width, info_.image_height);
      return false;
    }
    const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    info_.scale_num = static_cast<unsigned>(request.eighths);
    info_.scale_denom = 8;
    jpeg_start_decompress(&info_);
    if (errors_.at_end && jpeg_has_multiple_scans(&info_)) errors_.lacks_rows |= lacks_scans(&info_);
    out = {0, 0, info_.output_height, info_.output_width};
    if (!request.whole) choose_region(request, out);
    return true;
  }

  /// Decodes the region. `rows` receives out.height rows of out.width pixels; `row` is a buffer for rows that are not needed.
  bool read(std::uint8_t* rows, std::uint8_t* row, const JpegPixels& out) {
    if (setjmp(errors_.jump) != 0) return false;
    const std::size_t stride = static_cast<std::size_t>(out.width) * static_cast<std::size_t>(channels());
    if (out.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(out.top));
    for (std::int64_t y = 0; y < out.height;) {
      std::array<JSAMPROW, 8> lines;
      const std::int64_t count = std::min<std::int64_t>(lines.size(), out.height - y);
      for (std::int64_t k = 0; k < count; ++k)
        lines[static_cast<std::size_t>(k)] = rows + static_cast<std::size_t>(y + k) * stride;
      y += jpeg_read_scanlines(&info_, lines.data(), static_cast<JDIMENSION>(count));
    }
    // Reads the last row, because skipping to the end would not check that the file is complete.
    if (info_.output_scanline + 1 < info_.output_height)
      jpeg_skip_scanlines(&info_, info_.output_height - info_.output_scanline - 1);
    while (info_.output_scanline < info_.output_height) jpeg_read_scanlines(&info_, &row, 1);
    jpeg_finish_decompress(&info_);
    return true;
  }

  int channels() const { return info_.output_components; }
  bool lacks_rows() const { return errors_.lacks_rows; }
  bool at_end() const { return errors_.at_end; }
  std::string error() const { return errors_.text.data(); }

 private:
  // Extends the region to whole blocks and one more block on each side, because the upsampling of colors uses neighboring
  // pixels.
  void choose_region(const JpegRequest& request, JpegPixels& out) {
    const auto [top, left, height, width] = request.region;
    const std::int64_t block = request.eighths * 2;
    const auto begin = [&](std::int64_t at) { return std::max<std::int64_t>(at * request.eighths / 8 - block, 0); };
    const auto end = [&](std::int64_t at, std::int64_t limit) {
      return std::min((at * request.eighths + 7) / 8 + block, limit);
    };
    out.top = begin(top);
    out.height = end(top + height, out.height) - out.top;
    const std::int64_t first = begin(left);
    if (first == 0 && end(left + width, out.width) == out.width) return;
    auto x = static_cast<JDIMENSION>(first);
    auto count = static_cast<JDIMENSION>(end(left + width, out.width) - first);
    jpeg_crop_scanline(&info_, &x, &count);
    out.left = x;
    out.width = count;
  }

  jpeg_decompress_struct info_;
  JpegErrors errors_;
  jpeg_progress_mgr progress_;
};

// Returns a * b / 255, rounded as in Pillow's MULDIV255.
std::uint8_t muldiv(int a, int b) {
  const int t = a * b + 128;
  return static_cast<std::uint8_t>(((t >> 8) + t) >> 8);
}

// Converts in place; a pixel is read before it is overwritten. Ink is stored inverted (Adobe's convention, which Pillow assumes
// for every CMYK JPEG): a stored 255 means no ink.
void cmyk_to_rgb(std::vector<std::uint8_t>& pixels) {
  const std::size_t count = pixels.size() / 4;
  for (std::size_t i = 0; i < count; ++i)
    ink_to_rgb({255 - pixels[4 * i], 255 - pixels[4 * i + 1], 255 - pixels[4 * i + 2]}, pixels[4 * i + 3], pixels.data() + 3 * i);
  pixels.resize(3 * count);
}

}  // namespace

void ink_to_rgb(const std::array<int, 3>& inks, int light, std::uint8_t* pixel) {
  for (std::size_t c = 0; c < 3; ++c) pixel[c] = static_cast<std::uint8_t>(light - muldiv(inks[c], light));
}

JpegPixels decode_jpeg(std::string_view file, std::int64_t height, std::int64_t width, const JpegRequest& request,
                       std::vector<std::uint8_t>& pixels) {
  JpegDecoder decoder;
  JpegPixels out;
  const auto check = [&](bool good) {
    if (decoder.lacks_rows() || (!good && decoder.at_end()))
      throw SampleError("truncated", "the JPEG file ends in the middle of the image");
    if (!good) bad_image("the JPEG file cannot be decoded: " + printable(decoder.error()));
  };
  check(decoder.start(file, height, width, request, out));
  const auto row = static_cast<std::size_t>(out.width) * static_cast<std::size_t>(decoder.channels());
  pixels.resize(row * static_cast<std::size_t>(out.height));
  thread_local std::vector<std::uint8_t> unwanted;
  unwanted.resize(row);
  check(decoder.read(pixels.data(), unwanted.data(), out));
  if (decoder.channels() == 4) cmyk_to_rgb(pixels);
  return out;
}

}  // namespace tessera
