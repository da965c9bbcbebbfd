#pragma once

#include <string>

#include <torch/nn/module.h>

namespace tessera {

/// A module without a computation of its own, which only gives names to its submodules.
class NamedParts : public torch::nn::Module {
 public:
  template <class Module>
  Module add(const std::string& name, Module module) {
    register_module(name, module);
    return module;
  }
};

}  // namespace tessera
