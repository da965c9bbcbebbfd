#include "src/data/formats/regions.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "src/data/formats/npy.h"
#include "src/io/safetensors_header.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>

namespace tessera {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw SampleError("bad_regions", "the region features are not [R, F] floats: " + text);
}

NpyMatrix read_tensor(std::string_view file, const std::string& wanted) {
  std::uint64_t length = 0;
  if (file.size() < sizeof(length)) refuse("the file has " + std::to_string(file.size()) + " bytes");
  std::memcpy(&length, file.data(), sizeof(length));
  if (length > file.size() - sizeof(length)) refuse("it is neither a .npy nor a safetensors file, or cut off");
  const std::string_view data = file.substr(sizeof(length) + length);
  io::SafetensorsHeader header;
  try {
    header = io::parse_safetensors_header(std::string(file.substr(sizeof(length), length)), data.size(),
                                          "the safetensors file");
  } catch (const UserError& error) {
    refuse(error.what());
  }
  if (header.entries.empty()) refuse("the safetensors file holds no tensor");
  auto entry = header.entries.begin();
  if (!wanted.empty())
    entry = std::find_if(header.entries.begin(), header.entries.end(),
                         [&](const io::TensorEntry& each) { return each.name == wanted; });
  if (entry == header.entries.end()) {
    std::vector<std::string> names;
    for (const io::TensorEntry& each : header.entries) names.push_back(each.name);
    refuse("there is no tensor " + wanted + "; there are: " + join_names(names));
  }
  if (entry->shape.empty() || entry->shape.size() > 2)
    refuse("tensor " + entry->name + " has " + std::to_string(entry->shape.size()) + " dimensions");
  auto values = to_floats(data.substr(entry->begin, entry->end - entry->begin), entry->dtype);
  if (!values) refuse("tensor " + entry->name + " is of type " + io::safetensors_dtype_name(entry->dtype));
  return {entry->shape.size() == 2 ? entry->shape[0] : 1, entry->shape.back(), std::move(*values)};
}

}  // namespace

void set_regions(std::string_view file, const std::string& tensor, Sample& sample) {
  NpyMatrix regions = file.starts_with("\x93NUMPY") ? read_npy(file) : read_tensor(file, tensor);
  sample.regions = std::move(regions.values);
  sample.region_width = regions.columns;
}

}  // namespace tessera
