#include "src/io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include <c10/core/ScalarType.h>
#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::io {
namespace {

using nlohmann::json;

struct DtypeName {
  const char* name;
  at::ScalarType dtype;
};
// The dtypes in the order of the reference library.
constexpr std::array<DtypeName, 10> kDtypes = {{{"BOOL", at::kBool},
                                                {"U8", at::kByte},
                                                {"I8", at::kChar},
                                                {"I16", at::kShort},
                                                {"F16", at::kHalf},
                                                {"BF16", at::kBFloat16},
                                                {"I32", at::kInt},
                                                {"F32", at::kFloat},
                                                {"F64", at::kDouble},
                                                {"I64", at::kLong}}};
constexpr std::size_t kMaxDimensions = 64;  // the limit of LibTorch's iterators
constexpr int kMaxDepth = 8;                // levels of nesting; a header needs 3, and each level costs stack and memory

class HeaderParser {
 public:
  HeaderParser(std::uint64_t data_bytes, const std::string& path) : data_bytes_(data_bytes), path_(path) {}

  SafetensorsHeader parse(const std::string& text) {
    const json root = parse_json(text);
    if (!root.is_object()) user_error(path_, ": not a safetensors file: its header is not a JSON object");
    SafetensorsHeader header;
    for (const auto& [name, value] : root.items()) {
      if (name == "__metadata__")
        header.metadata = read_metadata(value);
      else
        header.entries.push_back(read_entry(name, value));
    }
    check_layout(header.entries);
    return header;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const std::string& name, const Parts&... parts) const {
    user_error(path_, ": tensor ", printable(name), ": ", parts...);
  }

  json parse_json(const std::string& text) const {
    std::vector<std::set<std::string>> keys;
    std::string duplicate;
    const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth > kMaxDepth) user_error(path_, ": not a safetensors file: its header's lists are nested too deeply");
      if (event == json::parse_event_t::object_start) keys.emplace_back();
      if (event == json::parse_event_t::object_end) keys.pop_back();
      if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second &&
          duplicate.empty())
        duplicate = parsed.get<std::string>();
      return true;
    };
    json root;
    try {
      root = json::parse(text, watch);
    } catch (const json::exception&) {
      user_error(path_, ": not a safetensors file: its header is not valid JSON");
    }
    if (!duplicate.empty()) user_error(path_, ": the name ", printable(duplicate), " occurs twice in the header");
    return root;
  }

  std::map<std::string, std::string> read_metadata(const json& value) const {
    if (!value.is_object()) user_error(path_, ": __metadata__ is not a JSON object");
    std::map<std::string, std::string> metadata;
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) user_error(path_, ": __metadata__ ", printable(key), ": expected a string");
      metadata[key] = text.get<std::string>();
    }
    return metadata;
  }

  TensorEntry read_entry(const std::string& name, const json& value) const {
    if (!value.is_object()) fail(name, "its header entry is not a JSON object");
    for (const char* key : {"dtype", "shape", "data_offsets"})
      if (!value.contains(key)) fail(name, "its header entry has no ", key);

    const at::ScalarType dtype = read_dtype(name, value["dtype"]);
    std::vector<std::int64_t> shape = read_shape(name, value["shape"]);
    const json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
        !offsets[1].is_number_unsigned())
      fail(name, "data_offsets must be two whole numbers of at least 0");
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end) fail(name, "data_offsets run backwards: ", begin, " to ", end);
    if (end > data_bytes_)
      fail(name, "its data ends at byte ", end, " of a data part of ", data_bytes_, " bytes (truncated file?)");
    const std::uint64_t expected = byte_count(name, shape, dtype);
    if (end - begin != expected)
      fail(name, "shape and dtype need ", expected, " bytes, but data_offsets hold ", end - begin);
    return {name, dtype, std::move(shape), begin, end};
  }

  at::ScalarType read_dtype(const std::string& name, const json& value) const {
    if (!value.is_string()) fail(name, "dtype must be a string");
    const std::string wanted = value.get<std::string>();
    std::vector<std::string> known;
    for (const DtypeName& each : kDtypes) {
      if (wanted == each.name) return each.dtype;
      known.emplace_back(each.name);
    }
    fail(name, "unknown dtype ", printable(wanted), "; known: ", join_names(known));
  }

  std::vector<std::int64_t> read_shape(const std::string& name, const json& value) const {
    if (!value.is_array()) fail(name, "shape must be a list");
    if (value.size() > kMaxDimensions)
      fail(name, "shape has ", value.size(), " dimensions; the limit is ", kMaxDimensions);
    std::vector<std::int64_t> shape;
    for (const json& item : value) {
      if (!item.is_number_unsigned() ||
          item.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        fail(name, "shape must hold whole numbers of at least 0, got ", printable(item.dump()));
      shape.push_back(static_cast<std::int64_t>(item.get<std::uint64_t>()));
    }
    return shape;
  }

  // A size of 0 counts as 1 in the overflow test, because LibTorch still multiplies the other dimensions to compute strides.
  std::uint64_t byte_count(const std::string& name, const std::vector<std::int64_t>& shape,
                           at::ScalarType dtype) const {
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
    bool empty = false;
    for (std::int64_t size : shape) {
      if (size == 0) empty = true;
      if (size > 1 && __builtin_mul_overflow(bytes, size, &bytes)) fail(name, "its shape overflows 64 bits");
    }
    return empty ? 0 : static_cast<std::uint64_t>(bytes);
  }

  void check_layout(std::vector<TensorEntry>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    std::uint64_t place = 0;
    for (const TensorEntry& entry : entries) {
      if (entry.begin < place) fail(entry.name, "its data overlaps another tensor's data");
      if (entry.begin > place) fail(entry.name, "there is a hole of ", entry.begin - place, " bytes before its data");
      place = entry.end;
    }
    if (place != data_bytes_) user_error(path_, ": ", data_bytes_ - place, " bytes at the end belong to no tensor");
  }

  std::uint64_t data_bytes_;
  const std::string& path_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(const std::string& text, std::uint64_t data_bytes, const std::string& path) {
  return HeaderParser(data_bytes, path).parse(text);
}

const char* safetensors_dtype_name(at::ScalarType dtype) {
  for (const DtypeName& each : kDtypes)
    if (each.dtype == dtype) return each.name;
  return nullptr;
}

int safetensors_dtype_rank(at::ScalarType dtype) {
  const auto found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeName& each) { return each.dtype == dtype; });
  return static_cast<int>(found - kDtypes.begin());
}

}  // namespace tessera::io
