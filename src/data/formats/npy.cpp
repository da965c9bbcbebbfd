#include "src/data/formats/npy.h"

#include <cstring>
#include <string>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "src/base/printable.h"
#include <tessera/base/text.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

[[noreturn]] void fail(const std::string& text) {
  throw SampleError("bad_regions", "the region features are not a .npy of [R, F] floats: " + text);
}

// Returns the value of `key` (given with its quotes) in the header's Python dictionary, up to the character `end`.
std::string_view value_of(std::string_view header, std::string_view key, char end) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) fail("its header lacks " + std::string(key));
  const std::size_t colon = header.find(':', at);
  const std::size_t stop = header.find(end, colon);
  if (colon == std::string_view::npos || stop == std::string_view::npos) fail("its header is cut");
  return strip(header.substr(colon + 1, stop - colon - 1));
}

std::vector<std::int64_t> parse_shape(std::string_view text) {
  if (!text.empty() && text[0] == '(') text.remove_prefix(1);
  std::vector<std::int64_t> shape;
  for (const std::string& each : split(text, ',')) {
    const std::string number(strip(each));
    if (number.empty()) continue;
    if (number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos)
      fail("its shape is (" + printable(text, 60) + ")");
    shape.push_back(std::stoll(number));
  }
  return shape;
}

template <class T>
std::vector<float> converted(std::string_view data) {
  std::vector<float> out(data.size() / sizeof(T));
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
  return out;
}

}  // namespace

std::optional<std::vector<float>> to_floats(std::string_view data, at::ScalarType type) {
  if (type == at::kHalf) return converted<c10::Half>(data);
  if (type == at::kBFloat16) return converted<c10::BFloat16>(data);
  if (type == at::kFloat) return converted<float>(data);
  if (type == at::kDouble) return converted<double>(data);
  return std::nullopt;
}

NpyMatrix read_npy(std::string_view file) {
  using namespace std::string_view_literals;
  if (file.size() < 12 || !file.starts_with("\x93NUMPY"sv)) fail("it does not start like one");
  const bool long_header = file[6] >= 2;
  const std::size_t prefix = long_header ? 12 : 10;
  std::size_t length = 0;
  for (std::size_t i = prefix; i > 8; --i) length = length << 8 | static_cast<std::uint8_t>(file[i - 1]);
  if (length > file.size() - prefix) fail("its header is cut");
  const std::string_view header = file.substr(prefix, length);
  if (value_of(header, "'fortran_order'", ',') != "False") fail("it is in Fortran order");
  const std::string_view type = value_of(header, "'descr'", ',');
  const std::vector<std::int64_t> shape = parse_shape(value_of(header, "'shape'", ')'));
  if (shape.empty() || shape.size() > 2) fail("it has " + std::to_string(shape.size()) + " dimensions");
  NpyMatrix out{shape.size() == 2 ? shape[0] : 1, shape.back(), {}};
  const std::string_view data = file.substr(prefix + length);
  const std::size_t width = type == "'<f2'" ? 2 : type == "'<f4'" ? 4 : type == "'<f8'" ? 8 : 0;
  if (width == 0) fail("its type is " + printable(type, 60));
  const auto count = static_cast<std::size_t>(out.rows * out.columns);
  if (data.size() / width < count) fail("it is cut off");
  out.values = *to_floats(data.substr(0, count * width), width == 2   ? at::kHalf
                                                         : width == 4 ? at::kFloat
                                                                      : at::kDouble);
  return out;
}

}  // namespace tessera
