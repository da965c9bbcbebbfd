#include "src/ops/tuning.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <ATen/Context.h>
#include <nlohmann/json.hpp>
#include <torch/version.h>

#include "src/base/digest.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera {
namespace {
namespace tuning_parts {

using kernels::Pass;
using nlohmann::json;

constexpr std::array kTypes = {std::pair{"float32", at::kFloat}, std::pair{"bfloat16", at::kBFloat16}, std::pair{"float16", at::kHalf}};
constexpr std::array kPasses = {std::pair{"forward", Pass::kForward}, std::pair{"backward", Pass::kBackward}};

template <class Names, class Value>
std::string name_of(const Names& names, Value value) {
  for (const auto& [name, each] : names)
    if (each == value) return name;
  return "unknown";
}

[[noreturn]] void refuse(const std::string& file, const std::string& key, const std::string& mistake) {
  user_error(file, ": ", key, ": ", mistake, ": write the table anew with tessera-bench tune --device cuda --json FILE");
}

// One JSON object of a table, with the key under which it is in the file.
struct Entry {
  const std::string& file;
  std::string key;
  const json& value;

  std::string below(const std::string& name) const { return key.empty() ? name : key + "." + name; }
  const json& at(const std::string& name, bool (json::*is)() const noexcept, const std::string& expected) const {
    const auto found = value.find(name);
    if (found == value.end()) refuse(file, below(name), "missing, expected " + expected);
    if (!((*found).*is)()) refuse(file, below(name), "expected " + expected + ", got " + found->dump());
    return *found;
  }
  std::string text(const std::string& name) const { return at(name, &json::is_string, "a text"); }
  template <class Names>
  auto one_of(const std::string& name, const Names& names) const {
    const std::string given = text(name);
    std::string all;
    for (const auto& [each, value_of_it] : names) {
      if (given == each) return value_of_it;
      all += (all.empty() ? "" : ", ") + std::string(each);
    }
    refuse(file, below(name), "expected one of " + all + ", got " + given);
  }
  template <class Value>
  std::map<std::string, Value> numbers_or_texts(const std::string& name, bool (json::*is)() const noexcept) const {
    std::map<std::string, Value> out;
    for (const auto& [each, item] : at(name, &json::is_object, "an object").items()) {
      if (!(item.*is)()) refuse(file, below(name) + "." + each, "unexpected value " + item.dump());
      out[each] = item.template get<Value>();
    }
    return out;
  }
};

void add_choice(TuningTable& table, const Entry& entry) {
  if (!entry.value.is_object()) refuse(entry.file, entry.key, "expected an object");
  TuningKey key{entry.text("operator"), entry.one_of("pass", kPasses), entry.one_of("type", kTypes), {}};
  for (const json& size : entry.at("shape", &json::is_array, "a list of integers")) {
    if (!size.is_number_integer()) refuse(entry.file, entry.below("shape"), "expected a list of integers");
    key.shape.push_back(size);
  }
  TuningChoice choice{entry.text("configuration"), entry.text("library"),
                      entry.numbers_or_texts<double>("microseconds", &json::is_number)};
  if (!choice.library.empty() && !table.libraries.contains(choice.library))
    refuse(entry.file, entry.below("library"), "libraries has no version of " + choice.library);
  if (!table.choices.emplace(key, std::move(choice)).second) refuse(entry.file, entry.key, "repeats the problem of an earlier choice");
}

// Returns the version that a function of a loaded library reports; nothing if the library is not loaded.
std::optional<std::string> loaded_version(std::initializer_list<const char*> libraries, const char* function) {
  for (const char* library : libraries) {
    void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    const auto version = reinterpret_cast<std::size_t (*)()>(::dlsym(handle, function));
    ::dlclose(handle);
    if (version != nullptr) return std::to_string(version());
  }
  return std::nullopt;
}

struct Forced {
  TuningKey key;
  std::string configuration;
};
std::optional<Forced>& forced() {
  static std::optional<Forced> value;
  return value;
}

std::string text_of(const TuningKey& key) {
  std::ostringstream out;
  out << "the choice for " << key.op << ", " << name_of(kPasses, key.pass) << ", " << name_of(kTypes, key.type) << ", shape [";
  for (std::size_t i = 0; i < key.shape.size(); ++i) out << (i == 0 ? "" : ", ") << key.shape[i];
  out << "]";
  return out.str();
}

}  // namespace tuning_parts
}  // namespace

std::string TuningTable::digest() const {
  if (choices.empty()) return "built-in";
  std::string text = gpu;
  for (const auto& [key, choice] : choices) text += "\n" + tuning_parts::text_of(key) + ": " + choice.configuration;
  return sha256(text).substr(0, 16);
}

TuningTable read_tuning_table(const std::string& file) {
  using namespace tuning_parts;
  std::ifstream stream(file, std::ios::binary);
  if (!stream)
    user_error(file, ": cannot read this tuning table (TESSERA_TUNING names the file): unset TESSERA_TUNING or name another file");
  const json content = json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object()) refuse(file, "the file", "is not a JSON object");
  const Entry top{file, "", content};
  TuningTable table{file, top.text("gpu"), top.numbers_or_texts<std::string>("libraries", &json::is_string), {}, {}};
  std::size_t index = 0;
  for (const json& choice : top.at("choices", &json::is_array, "a list"))
    add_choice(table, {file, concat("choices[", index++, "]"), choice});
  return table;
}

std::string to_json(const TuningTable& table) {
  using namespace tuning_parts;
  nlohmann::ordered_json out = {{"gpu", table.gpu}, {"libraries", table.libraries}, {"choices", nlohmann::ordered_json::array()}};
  for (const auto& [key, choice] : table.choices)
    out["choices"].push_back({{"operator", key.op},
                              {"pass", name_of(kPasses, key.pass)},
                              {"type", name_of(kTypes, key.type)},
                              {"shape", key.shape},
                              {"configuration", choice.configuration},
                              {"library", choice.library},
                              {"microseconds", choice.microseconds}});
  return out.dump(1) + "\n";
}

TuningTable find_tuning_table(const std::string& named, const std::string& gpu, const std::map<std::string, std::string>& libraries) {
  std::string file = named;
  if (file.empty()) {
    const std::filesystem::path configurations = config::shipped_folder();
    file = configurations.parent_path() / "tuning" / tuning_file_name(gpu);
    std::error_code missing;
    if (configurations.empty() || !std::filesystem::exists(file, missing)) return {};
  }
  TuningTable table = read_tuning_table(file);
  if (table.gpu != gpu)
    tuning_parts::refuse(file, "gpu", "the table is for " + table.gpu + ", but this machine has " + gpu);
  const auto version = [](const std::map<std::string, std::string>& of, const std::string& library) {
    const auto found = of.find(library);
    return found == of.end() ? std::string("none") : found->second;
  };
  std::map<std::string, int> left_out;
  std::erase_if(table.choices, [&](const auto& item) {
    const std::string& library = item.second.library;
    const bool outdated = !library.empty() && version(table.libraries, library) != version(libraries, library);
    if (outdated) ++left_out[library];
    return outdated;
  });
  for (const auto& [library, count] : left_out)
    table.outdated += concat(table.outdated.empty() ? "" : "; ", count, " choices are for ", library, " ",
                             version(table.libraries, library), ", but ", version(libraries, library), " is loaded");
  return table;
}

std::string tuning_file_name(const std::string& gpu) {
  std::string name;
  for (const unsigned char c : gpu)
    if (std::isalnum(c) != 0)
      name += static_cast<char>(std::tolower(c));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  return name + ".json";
}

std::string gpu_name(int index) {
  // The driver's own library, so that no CUDA header is needed.
  void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver != nullptr) {
    const auto initialize = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
    const auto device_at = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
    const auto name_of = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
    std::array<char, 256> name{};
    int device = 0;
    const bool found = initialize != nullptr && device_at != nullptr && name_of != nullptr && initialize(0) == 0 &&
                       device_at(&device, std::max(0, index)) == 0 && name_of(name.data(), name.size(), device) == 0;
    ::dlclose(driver);
    if (found) return name.data();
  }
  return "GPU " + std::to_string(index);
}

std::map<std::string, std::string> library_versions() {
  std::map<std::string, std::string> out = {{"torch", TORCH_VERSION}};
  const auto add = [&](const char* name, const std::optional<std::string>& version) {
    if (version) out[name] = *version;
  };
  add("cublas", tuning_parts::loaded_version({"libcublasLt.so.13", "libcublasLt.so.12"}, "cublasLtGetVersion"));
  add("cudnn", tuning_parts::loaded_version({"libcudnn.so.9"}, "cudnnGetVersion"));
  return out;
}

const TuningTable& tuning_table() {
  static const TuningTable table = [] {
    const char* const named = std::getenv("TESSERA_TUNING");
    const std::string gpu = gpu_name(at::detail::getCUDAHooks().current_device());
    return find_tuning_table(named != nullptr ? named : "", gpu, library_versions());
  }();
  return table;
}

const char* tuned_configuration(const TuningKey& key, const std::vector<std::string>& known) {
  if (const auto& forced = tuning_parts::forced(); forced && forced->key == key) return forced->configuration.c_str();
  if (!at::hasCUDA()) return nullptr;
  const auto& choices = tuning_table().choices;
  const auto found = choices.find(key);
  if (found == choices.end()) return nullptr;
  const std::string& name = found->second.configuration;
  if (!known.empty() && !contains(known, name)) refuse_tuned_configuration(key, "there is no configuration " + name);
  return name.c_str();
}

void refuse_tuned_configuration(const TuningKey& key, const std::string& mistake) {
  tuning_parts::refuse(tuning_table().file, tuning_parts::text_of(key), mistake);
}

ForcedConfiguration::ForcedConfiguration(const TuningKey& key, const std::string& configuration) {
  tuning_parts::forced() = {key, configuration};
}

ForcedConfiguration::~ForcedConfiguration() {
  tuning_parts::forced().reset();
}

}  // namespace tessera
