#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/config/registry.h>

namespace tessera {

/// A JSON configuration of another library. Keys are read one by one, and a missing key has that library's default
/// value. Errors are UserErrors that name the file and the key.
class ForeignConfig {
 public:
  ForeignConfig(nlohmann::json json, std::string path, std::string section = "")
      : json_(std::move(json)), path_(std::move(path)), section_(std::move(section)) {}

  /// Throws UserError if the file is not readable or not a JSON object.
  static ForeignConfig of_file(const std::string& path);

  bool has(const std::string& key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  const nlohmann::json& json() const { return json_; }
  const std::string& path() const { return path_; }

  template <class T>
  T get(const std::string& key, const T& otherwise) const {
    if (!has(key)) return otherwise;
    try {
      return json_.at(key).get<T>();
    } catch (const nlohmann::json::exception&) {
      refuse(key, "has another type than its library writes");
    }
  }

  /// Returns the object under `key`, or an empty object if the configuration lacks the key.
  ForeignConfig section(const std::string& key) const {
    const nlohmann::json inner = has(key) ? json_.at(key) : nlohmann::json::object();
    if (!inner.is_object()) refuse(key, "is not an object");
    return {inner, path_, section_ + key + "."};
  }

  /// Throws UserError if the key has a value other than `only`, which is the library's default and the one value that our models support.
  template <class T>
  void expect(const std::string& key, const T& only) const {
    if (get<T>(key, only) != only) refuse(key, "has no counterpart in our models");
  }

  /// Returns Tessera's name for the activation under `key`, or `otherwise` if the configuration lacks the key.
  std::string activation(const std::string& key, const std::string& otherwise) const;

  /// Returns the size under `key`, or `otherwise` if the configuration lacks the key. The value is a number of pixels or [height, width].
  config::Size size(const std::string& key, const config::Size& otherwise) const;

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    user_error(path_, ": ", section_, key, " is ", json_.contains(key) ? json_.at(key).dump() : "missing", ", which ", why);
  }

 private:
  nlohmann::json json_;
  std::string path_, section_;
};

/// Goes through the keys of a configuration and the settings that hold their values. One function that lists the keys thus reads as well as
/// writes a configuration. Reading replaces the settings' values; before it, they are the defaults of missing keys.
class ForeignKeys {
 public:
  explicit ForeignKeys(const ForeignConfig& from) : from_(&from) {}
  explicit ForeignKeys(nlohmann::json& to) : to_(&to) {}

  template <class T>
  void operator()(const char* key, T& value) const {
    if (from_ != nullptr)
      value = from_->get(key, value);
    else
      (*to_)[key] = value;
  }
  /// A number of pixels, or [height, width].
  void size(const char* key, config::Size& value) const;
  void activation(const char* key, std::string& value) const;
  /// A key of which our models support only this value, which is the library's default.
  template <class T>
  void only(const char* key, const T& value) const {
    if (from_ != nullptr)
      from_->expect(key, value);
    else
      (*to_)[key] = value;
  }

 private:
  const ForeignConfig* from_ = nullptr;
  nlohmann::json* to_ = nullptr;
};

/// Returns the module `name` with these settings. All others have their defaults.
config::ModuleSettings module_with(const char* name, const nlohmann::json& settings);

/// Returns the name and the settings of a module as ModuleSettings.
template <class Settings>
config::ModuleSettings chosen(const char* name, const Settings& settings) {
  return {name, config::dump(settings)};
}

/// Returns the projection `linear` with these settings as ModuleSettings.
config::ModuleSettings linear_to(std::int64_t embed_dim, bool bias = false);

/// Returns a size in the form that ForeignConfig::size() reads.
nlohmann::json size_json(const config::Size& size);

}  // namespace tessera
