#include <algorithm>
#include <filesystem>

#include <ATen/ATen.h>

#include "tests/reference/case.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera::probe {
namespace {

using nlohmann::json;

json parse_json(const std::string& text, const std::string& where) {
  try {
    return json::parse(text);
  } catch (const json::exception&) {
    user_error(where, ": not valid JSON");
  }
}

config::Node settings_of(const json& value, const std::string& path) {
  if (!value.is_object() && !value.is_null()) user_error(path, ": settings must be a JSON object");
  return value.is_null() ? config::Node::map() : config::from_json(value, path);
}

double rtol_of(const std::string& text, const std::string& path) {
  const json value = json::parse(text, nullptr, false);
  if (!value.is_number() || !(value.get<double>() >= 0))
    user_error(path, ": rtol must be a number of at least 0, got ", text);
  return value.get<double>();
}

// Returns the map of `out` that the prefix of `name` selects, or nullptr if it selects none. Sets `rest` to the name without the prefix.
std::map<std::string, at::Tensor>* place_of(Case& out, const std::string& name, std::string& rest) {
  const std::pair<const char*, std::map<std::string, at::Tensor>*> places[] = {
      {"in.", &out.inputs},
      {"param.", &out.parameters},
      {"out.", &out.outputs},
      {"cotangent.", &out.cotangents},
      {"grad.in.", &out.input_gradients},
      {"grad.param.", &out.parameter_gradients}};
  for (const auto& [prefix, place] : places) {
    if (name.rfind(prefix, 0) != 0) continue;
    rest = name.substr(std::string_view(prefix).size());
    return place;
  }
  return nullptr;
}

Case load_safetensors_case(const std::string& path) {
  io::TensorFile file = io::load_safetensors(path);
  Case out;
  out.path = path;
  out.module = file.metadata["module"];
  if (out.module.empty()) user_error(path, ": not a reference case: its metadata names no module");
  if (!file.metadata["settings"].empty())
    out.settings = settings_of(parse_json(file.metadata["settings"], path + ": settings"), path);
  out.note = file.metadata["note"];
  if (!file.metadata["rtol"].empty()) out.rtol = rtol_of(file.metadata["rtol"], path);
  out.float32_only = file.metadata["float32_only"] == "true";
  for (const auto& [name, tensor] : file.tensors) {
    if (name.rfind("shard.", 0) == 0) continue;  // only the distributed tests use the shards of single ranks
    std::string rest;
    std::map<std::string, at::Tensor>* place = place_of(out, name, rest);
    if (place == nullptr)
      user_error(path, ": tensor ", name,
                 ": expected a name that begins with in., param., out., cotangent., grad.in., grad.param. or shard.");
    place->emplace(rest, tensor);
  }
  return out;
}

// Collects the numbers of nested lists. Returns false if the lists are ragged or contain anything but numbers.
bool collect(const json& value, std::size_t depth, std::vector<std::int64_t>& shape, std::vector<json>& flat) {
  if (!value.is_array()) {
    flat.push_back(value);
    return (value.is_number() || value.is_boolean()) && depth == shape.size();
  }
  const auto size = static_cast<std::int64_t>(value.size());
  if (depth == shape.size()) {
    if (!flat.empty()) return false;
    shape.push_back(size);
  } else if (shape[depth] != size) {
    return false;
  }
  return std::all_of(value.begin(), value.end(),
                     [&](const json& item) { return collect(item, depth + 1, shape, flat); });
}

// Converts a regular array to a tensor: whole numbers to int64, bools to bool, other numbers to float64. Returns an undefined tensor for
// any other value.
at::Tensor tensor_of(const json& value) {
  std::vector<std::int64_t> shape;
  std::vector<json> flat;
  if (!collect(value, 0, shape, flat)) return {};
  const auto all = [&](auto test) { return !flat.empty() && std::all_of(flat.begin(), flat.end(), test); };
  const bool bools = all([](const json& item) { return item.is_boolean(); });
  const bool whole = all([](const json& item) { return item.is_number_integer(); });
  if (!bools && !whole && std::any_of(flat.begin(), flat.end(), [](const json& item) { return item.is_boolean(); }))
    return {};
  if (whole) {
    std::vector<std::int64_t> numbers;
    for (const json& item : flat) numbers.push_back(item.get<std::int64_t>());
    return at::tensor(numbers, at::kLong).reshape(shape);
  }
  std::vector<double> numbers;
  for (const json& item : flat) numbers.push_back(bools ? static_cast<double>(item.get<bool>()) : item.get<double>());
  return at::tensor(numbers, at::kDouble).reshape(shape).to(bools ? at::kBool : at::kDouble);
}

// Converts a list of texts to a tensor. Returns an undefined tensor for any other value.
at::Tensor texts_of(const json& value) {
  const bool texts = value.is_array() && !value.empty() &&
                     std::all_of(value.begin(), value.end(), [](const json& item) { return item.is_string(); });
  return texts ? tensor_of_texts(value.get<std::vector<std::string>>()) : at::Tensor();
}

Case load_json_case(const std::string& path) {
  const json root = parse_json(io::read_file(path), path);
  if (!root.is_object() || !root.contains("module") || !root["module"].is_string())
    user_error(path, ": not a reference case: it names no module");
  Case out;
  out.path = path;
  out.module = root["module"].get<std::string>();
  out.settings = settings_of(root.value("settings", json::object()), path);
  if (root.contains("note") && root["note"].is_string()) out.note = root["note"].get<std::string>();
  if (root.contains("rtol")) out.rtol = rtol_of(root["rtol"].dump(), path);
  out.json_inputs = root.value("inputs", json::object());
  for (const auto& [name, value] : out.json_inputs.items()) {
    const at::Tensor tensor = tensor_of(value);
    if (tensor.defined()) out.inputs.emplace(name, tensor);
  }
  const json outputs = root.value("outputs", json::object());
  for (const auto& [name, value] : outputs.items()) {
    at::Tensor tensor = tensor_of(value);
    if (!tensor.defined()) tensor = texts_of(value);
    if (!tensor.defined()) user_error(path, ": output ", name, " is neither a regular array of numbers nor a list of texts");
    out.outputs.emplace(name, tensor);
  }
  return out;
}

}  // namespace

at::Tensor tensor_of_texts(const std::vector<std::string>& texts) {
  std::size_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  at::Tensor out = at::full({std::ssize(texts), static_cast<std::int64_t>(longest)}, -1, at::kLong);
  auto* row = out.data_ptr<std::int64_t>();
  for (const std::string& text : texts) {
    std::transform(text.begin(), text.end(), row, [](char c) { return static_cast<std::uint8_t>(c); });
    row += longest;
  }
  return out;
}

Case load_case(const std::string& path) {
  return std::filesystem::path(path).extension() == ".json" ? load_json_case(path) : load_safetensors_case(path);
}

std::vector<json> load_json_lines(const std::string& path) {
  std::vector<json> lines;
  int number = 0;
  for (const std::string& line : split(io::read_file(path), '\n')) {
    ++number;
    if (!strip(line).empty()) lines.push_back(parse_json(line, path + ":" + std::to_string(number)));
  }
  return lines;
}

std::vector<std::string> case_files(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".safetensors" || extension == ".json" || extension == ".jsonl")
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tessera::probe
