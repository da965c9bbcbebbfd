#include "src/data/formats/regions.h"

#include <algorithm>
#include <cstring>
#include <optional>

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

[[noreturn]] void refuse_npy(const std::string& text) {
  throw SampleError("bad_regions", "the region features are not a .npy of [R, F] floats: " + text);
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

template <class T>
std::vector<float> read_floats(std::string_view data) {
  std::vector<float> out(data.size() / sizeof(T));
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
  return out;
}

// Converts little-endian numbers to float32; returns nullopt for another type.
std::optional<std::vector<float>> to_floats(std::string_view data, c10::ScalarType type) {
  if (type == c10::ScalarType::Half) return read_floats<c10::Half>(data);
  if (type == c10::ScalarType::BFloat16) return read_floats<c10::BFloat16>(data);
  if (type == c10::ScalarType::Float) return read_floats<float>(data);
  return type == c10::ScalarType::Double ? std::optional(read_floats<double>(data)) : std::nullopt;
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
  if (file.size() < 12 || !file.starts_with("\x93NUMPY")) refuse_npy("it does not start like one");
  const std::size_t prefix = file[6] >= 2 ? 12 : 10;
  std::size_t length = 0;
  for (std::size_t i = prefix; i > 8; --i) length = length << 8 | static_cast<std::uint8_t>(file[i - 1]);
  if (length > file.size() - prefix) refuse_npy("its header is cut");
  const std::string_view header = file.substr(prefix, length), data = file.substr(prefix + length);
  if (npy_value(header, "'fortran_order'", ',') != "False") refuse_npy("it is in Fortran order");
  const std::string_view type = npy_value(header, "'descr'", ',');
  const std::vector<std::int64_t> shape = parse_npy_shape(npy_value(header, "'shape'", ')'));
  if (shape.empty() || shape.size() > 2) refuse_npy(concat("it has ", shape.size(), " dimensions"));
  const std::size_t width = type == "'<f2'" ? 2 : type == "'<f4'" ? 4 : type == "'<f8'" ? 8 : 0;
  if (width == 0) refuse_npy("its type is " + printable(type, 60));
  using Type = c10::ScalarType;
  NpyLayout out{shape.size() == 2 ? shape[0] : 1, shape.back(), width == 2 ? Type::Half : width == 4 ? Type::Float : Type::Double, {}};
  const auto count = static_cast<std::size_t>(out.rows * out.columns);
  if (data.size() / width < count) refuse_npy("it is cut off");
  out.data = data.substr(0, count * width);
  return out;
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
