#include "src/data/formats/regions.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "src/base/printable.h"
#include "src/io/safetensors_header.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

/// Thrown by parse_npy() with what is wrong with a .npy file.
struct BadNpy : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void refuse_npy(const std::string& text) {
  throw BadNpy(text);
}

[[noreturn]] void refuse_regions(const std::string& text) {
  throw SampleError("bad_regions", "the region features are not [R, F] floats: " + text);
}

// Returns the value of `key` (given with its quotes) in the header's Python dictionary, up to the character `end`.
std::string_view npy_value(std::string_view header, std::string_view key, char end) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) refuse_npy("its header lacks " + std::string(key));
  const std::size_t colon = header.find(':', at), stop = header.find(end, colon);
  if (colon == std::string_view::npos || stop == std::string_view::npos) refuse_npy("its header is cut");
  return strip(header.substr(colon + 1, stop - colon - 1));
}

std::vector<std::int64_t> parse_npy_shape(std::string_view text) {
  if (!text.empty() && text[0] == '(') text.remove_prefix(1);
  std::vector<std::int64_t> shape;
  for (const std::string& each : split(text, ',')) {
    const std::string number(strip(each));
    if (number.empty()) continue;
    if (number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos) refuse_npy("its shape is (" + printable(text, 60) + ")");
    shape.push_back(std::stoll(number));
  }
  return shape;
}

template <class T, class Out = double>
std::vector<Out> read_numbers(std::string_view data) {
  std::vector<Out> out(data.size() / sizeof(T));
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<Out>(value);
  }
  return out;
}

using ReadNumbers = std::vector<double> (*)(std::string_view data);
// NumPy's names of the types of numbers. Its last character is the number of bytes.
const std::map<std::string_view, ReadNumbers> kNumbers = {
    {"'<f2'", read_numbers<c10::Half>},     {"'<f4'", read_numbers<float>},         {"'<f8'", read_numbers<double>},
    {"'|i1'", read_numbers<std::int8_t>},   {"'<i2'", read_numbers<std::int16_t>},  {"'<i4'", read_numbers<std::int32_t>},
    {"'<i8'", read_numbers<std::int64_t>},  {"'|u1'", read_numbers<std::uint8_t>},  {"'<u2'", read_numbers<std::uint16_t>},
    {"'<u4'", read_numbers<std::uint32_t>}, {"'<u8'", read_numbers<std::uint64_t>}, {"'|b1'", read_numbers<bool>}};
const std::map<std::string_view, c10::ScalarType> kFloats = {
    {"'<f2'", c10::ScalarType::Half}, {"'<f4'", c10::ScalarType::Float}, {"'<f8'", c10::ScalarType::Double}};

struct NpyFile {
  std::vector<std::int64_t> shape;  // one or two dimensions
  std::string_view type;            // a key of kNumbers
  std::string_view data;
};

NpyFile parse_npy(std::string_view file) {
  if (file.size() < 12 || !file.starts_with("\x93NUMPY")) refuse_npy("it does not start like one");
  const std::size_t prefix = file[6] >= 2 ? 12 : 10;
  std::size_t length = 0;
  for (std::size_t i = prefix; i > 8; --i) length = length << 8 | static_cast<std::uint8_t>(file[i - 1]);
  if (length > file.size() - prefix) refuse_npy("its header is cut");
  const std::string_view header = file.substr(prefix, length), data = file.substr(prefix + length);
  if (npy_value(header, "'fortran_order'", ',') != "False") refuse_npy("it is in Fortran order");
  NpyFile out{parse_npy_shape(npy_value(header, "'shape'", ')')), npy_value(header, "'descr'", ','), {}};
  if (out.shape.empty() || out.shape.size() > 2) refuse_npy(concat("it has ", out.shape.size(), " dimensions"));
  if (!kNumbers.contains(out.type)) refuse_npy("its type is " + printable(out.type, 60));
  const auto width = static_cast<std::size_t>(out.type[3] - '0');
  const auto count = static_cast<std::size_t>(out.shape[0] * (out.shape.size() == 2 ? out.shape[1] : 1));
  if (data.size() / width < count) refuse_npy("it is cut off");
  out.data = data.substr(0, count * width);
  return out;
}

// Converts little-endian numbers to float32; returns nullopt for another type.
std::optional<std::vector<float>> to_floats(std::string_view data, c10::ScalarType type) {
  if (type == c10::ScalarType::Half) return read_numbers<c10::Half, float>(data);
  if (type == c10::ScalarType::BFloat16) return read_numbers<c10::BFloat16, float>(data);
  if (type == c10::ScalarType::Float) return read_numbers<float, float>(data);
  return type == c10::ScalarType::Double ? std::optional(read_numbers<double, float>(data)) : std::nullopt;
}

NpyMatrix read_tensor(std::string_view file, const std::string& wanted) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) refuse_regions(concat("the file has ", file.size(), " bytes"));
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > file.size() - sizeof(length)) refuse_regions("it is neither a .npy nor a safetensors file, or cut off");
  const std::string_view data = file.substr(sizeof(length) + length);
  io::SafetensorsHeader header;
  try {
    header = io::parse_safetensors_header(std::string(file.substr(sizeof(length), length)), data.size(), "the safetensors file");
  } catch (const UserError& error) {
    refuse_regions(error.what());
  }
  if (header.entries.empty()) refuse_regions("the safetensors file holds no tensor");
  const auto entry = wanted.empty() ? header.entries.begin() : std::ranges::find(header.entries, wanted, &io::TensorEntry::name);
  if (entry == header.entries.end()) {
    std::vector<std::string> names;
    for (const io::TensorEntry& each : header.entries) names.push_back(each.name);
    refuse_regions("there is no tensor " + wanted + "; there are: " + join_names(names));
  }
  if (entry->shape.empty() || entry->shape.size() > 2) refuse_regions(concat("tensor ", entry->name, " has ", entry->shape.size(), " dimensions"));
  auto values = to_floats(data.substr(entry->begin, entry->end - entry->begin), entry->dtype);
  if (!values) refuse_regions("tensor " + entry->name + " is of type " + io::safetensors_dtype_name(entry->dtype));
  return {entry->shape.size() == 2 ? entry->shape[0] : 1, entry->shape.back(), std::move(*values)};
}

}  // namespace

NpyLayout npy_layout(std::string_view file) {
  try {
    NpyFile parsed = parse_npy(file);
    if (!kFloats.contains(parsed.type)) refuse_npy("its type is " + printable(parsed.type, 60));
    const std::vector<std::int64_t>& shape = parsed.shape;
    return {shape.size() == 2 ? shape[0] : 1, shape.back(), kFloats.at(parsed.type), parsed.data};
  } catch (const BadNpy& error) {
    throw SampleError("bad_regions", concat("the region features are not a .npy of [R, F] floats: ", error.what()));
  }
}

std::vector<double> read_npy_numbers(std::string_view file, const std::string& what) {
  try {
    const NpyFile parsed = parse_npy(file);
    if (parsed.shape.size() != 1) refuse_npy(concat("it has ", parsed.shape.size(), " dimensions"));
    return kNumbers.at(parsed.type)(parsed.data);
  } catch (const BadNpy& error) {
    throw SampleError("bad_fields", concat(what, " is not a .npy of numbers in one dimension: ", error.what()));
  }
}

NpyMatrix read_npy(std::string_view file) {
  const NpyLayout layout = npy_layout(file);
  return {layout.rows, layout.columns, *to_floats(layout.data, layout.type)};
}

void set_regions(std::string_view file, const std::string& tensor, Sample& sample) {
  NpyMatrix regions = file.starts_with("\x93NUMPY") ? read_npy(file) : read_tensor(file, tensor);
  sample.regions = std::move(regions.values);
  sample.region_width = regions.columns;
}

}  // namespace tessera
