#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tessera/config/fields.h>

namespace tessera::config {

/// The settings of a module chosen by name: `{name: sparc, threshold: 0.1}`. Only the registry knows what the settings mean.
struct ModuleSettings {
  std::string name;
  Node settings = Node::map();  // the settings except `name`
};

template <>
struct Value<ModuleSettings> {
  static ModuleSettings read(const Node& node, const std::string& path, const ModuleSettings&);
  static Node dump(const ModuleSettings& value);
  static std::string type() { return "{name: NAME, settings...}"; }
};

/// Returns the struct that the node was read into at this path before, or reads the node.
template <class Settings>
std::shared_ptr<const ReadSettings> read_once(const Node& node, const std::string& path) {
  const std::shared_ptr<const ReadSettings>& before = node.read_settings();
  if (before && before->path == path && std::any_cast<Settings>(&before->value) != nullptr) return before;
  return std::make_shared<const ReadSettings>(ReadSettings{read<Settings>(node, path), path});
}

/// The part of a registry that does not depend on its product type: names, validation, documentation.
class RegistryBase {
 public:
  struct Entry {
    std::string name;
    std::string help;
    std::function<std::shared_ptr<const ReadSettings>(const Node&, const std::string& path)> read;  // validates the settings
    std::function<Node(const std::any& settings)> dump;
    std::function<std::vector<FieldDoc>()> document;
  };

  explicit RegistryBase(std::string kind) : kind_(std::move(kind)) {}
  const std::string& kind() const { return kind_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;

  /// Validates a choice and fills in its defaults. The result's settings keep the struct that was read, so that make() does not read them
  /// again. Throws UserError for an unknown name (suggesting the nearest valid one) and for unknown or wrong settings.
  ModuleSettings resolve(const ModuleSettings& choice, const std::string& path) const;

 protected:
  std::size_t index_of(const ModuleSettings& choice, const std::string& path) const;
  std::string kind_;
  std::vector<Entry> entries_;
};

/// Maps names to factories. `Args` are the arguments that a factory takes besides its settings. Each kind of module has one explicit list
/// that fills its registry (see src/objectives/registry.cpp); user code may add modules.
template <class Product, class... Args>
class Registry : public RegistryBase {
 public:
  using RegistryBase::RegistryBase;

  /// Adds a module that is built from `Settings`. Throws UserError if the name is taken.
  template <class Settings>
  void add(const std::string& name, const std::string& help, std::function<std::shared_ptr<Product>(const Settings&, Args...)> factory) {
    if (contains(name)) user_error(kind_, " ", name, " is registered twice");
    entries_.push_back({name, help, read_once<Settings>,
                        [](const std::any& settings) { return dump(std::any_cast<const Settings&>(settings)); },
                        [] { return document<Settings>(); }});
    factories_.push_back([factory](const std::any& settings, Args... args) {
      return factory(std::any_cast<const Settings&>(settings), args...);
    });
  }

  std::shared_ptr<Product> make(const ModuleSettings& choice, const std::string& path, Args... args) const {
    const std::size_t index = index_of(choice, path);
    return factories_[index](entries_[index].read(choice.settings, path)->value, args...);
  }

 private:
  std::vector<std::function<std::shared_ptr<Product>(const std::any& settings, Args...)>> factories_;
};

/// For modules without settings.
struct NoSettings {};
void fields(auto&, NoSettings&) {}

}  // namespace tessera::config
