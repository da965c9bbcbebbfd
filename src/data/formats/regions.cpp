#include "src/data/formats/regions.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "src/base/printable.h"
#include "src/data/formats/npy.h"
#include "src/io/safetensors_header.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

[[noreturn]] void refuse_regions(const std::string& text) {
  throw SampleError("bad_regions", "the region features are not [R, F] floats: " + text);
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

// Reads a .npy file of one or two dimensions whose type is a key of `types`.
template <class Types>
NpyFile read_npy_file(std::string_view bytes, const Types& types) {
  NpyFile file = parse_npy(bytes);
  if (file.shape.empty() || file.shape.size() > 2) throw BadNpy(concat("it has ", file.shape.size(), " dimensions"));
  if (!types.contains(file.type)) throw BadNpy("its type is " + printable(file.type, 60));
  file.data = file.elements(static_cast<std::size_t>(file.type[3] - '0'));
  return file;
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
    const NpyFile parsed = read_npy_file(file, kFloats);
    const std::vector<std::int64_t>& shape = parsed.shape;
    return {shape.size() == 2 ? shape[0] : 1, shape.back(), kFloats.at(parsed.type), parsed.data};
  } catch (const BadNpy& error) {
    throw SampleError("bad_regions", concat("the region features are not a .npy of [R, F] floats: ", error.what()));
  }
}

std::vector<double> read_npy_numbers(std::string_view file, const std::string& what) {
  try {
    const NpyFile parsed = read_npy_file(file, kNumbers);
    if (parsed.shape.size() != 1) throw BadNpy(concat("it has ", parsed.shape.size(), " dimensions"));
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
