#include "src/foreign/foreign_config.h"

#include <tessera/io/atomic_file.h>

namespace tessera {

ForeignConfig ForeignConfig::of_file(const std::string& path) {
  const nlohmann::json json = nlohmann::json::parse(io::read_file(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) user_error(path, ": is not a JSON object: the file is damaged, or not a configuration");
  return {json, path};
}

std::string ForeignConfig::activation(const std::string& key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  const auto name = get<std::string>(key, "");
  if (name == "gelu" || name == "quick_gelu" || name == "silu" || name == "relu") return name;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast" || name == "gelu_accurate") return "gelu_tanh";
  if (name == "gelu_python") return "gelu";
  if (name == "swish") return "silu";
  refuse(key, "is not an activation that our models have");
}

config::Size ForeignConfig::size(const std::string& key, const config::Size& otherwise) const {
  if (!has(key)) return otherwise;
  const nlohmann::json& value = json_.at(key);
  if (value.is_number_integer()) return config::Size(value.get<std::int64_t>());
  if (value.is_array() && value.size() == 2 && value[0].is_number_integer() && value[1].is_number_integer())
    return {value[0].get<std::int64_t>(), value[1].get<std::int64_t>()};
  refuse(key, "is neither a number of pixels nor [height, width]");
}

void ForeignKeys::size(const char* key, config::Size& value) const {
  if (from_ != nullptr)
    value = from_->size(key, value);
  else
    (*to_)[key] = size_json(value);
}

void ForeignKeys::activation(const char* key, std::string& value) const {
  if (from_ != nullptr)
    value = from_->activation(key, value);
  else
    (*to_)[key] = value == "gelu_tanh" ? "gelu_pytorch_tanh" : value;
}

config::ModuleSettings module_with(const char* name, const nlohmann::json& settings) {
  return {name, config::from_json(settings, "")};
}

config::ModuleSettings linear_to(std::int64_t embed_dim, bool bias) {
  return module_with("linear", {{"embed_dim", embed_dim}, {"bias", bias}});
}

nlohmann::json size_json(const config::Size& size) {
  return size.height == size.width ? nlohmann::json(size.height) : nlohmann::json{size.height, size.width};
}

}  // namespace tessera
